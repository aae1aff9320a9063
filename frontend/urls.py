"""The addresses of the pages, and of the socket that says what is new."""

from __future__ import annotations

from django.urls import path, re_path

from frontend.consumers import LIVE_PATH, LiveConsumer
from frontend.views import clusters, dashboard, events, job, jobs, person, submit, teams

urlpatterns = [
    path("", dashboard.dashboard, name="dashboard"),
    path("jobs/", jobs.job_list, name="jobs"),
    path("jobs/cancel", jobs.cancel_many, name="cancel_many"),
    path("queue/", jobs.queue, name="queue"),
    path("submit/", submit.submit_page, name="submit"),
    path("submit/convert", submit.convert, name="convert"),
    path("jobs/<slug:key>/", job.job_page, name="job"),
    path("jobs/<slug:key>/retry", job.job_retry, name="job_retry"),
    path("jobs/<slug:key>/log", job.job_log, name="job_log"),
    path("jobs/<slug:key>/log.txt", job.job_log_file, name="job_log_file"),
    re_path(r"^jobs/(?P<key>[-\w]+)/(?P<verb>cancel|hold|release|requeue)$", job.job_action, name="job_action"),
    path("clusters/", clusters.clusters, name="clusters"),
    path("clusters/<slug:slug>/", clusters.cluster_page, name="cluster"),
    path("clusters/<slug:slug>/access", clusters.access, name="cluster_access"),
    path("clusters/<slug:slug>/nodes/<str:name>/", clusters.node_page, name="node"),
    re_path(
        r"^clusters/(?P<slug>[-\w]+)/nodes/(?P<name>[^/]+)/(?P<verb>cordon|drain|uncordon)$",
        clusters.node_action,
        name="node_action",
    ),
    path("nodes/", clusters.node_list, name="nodes"),
    path("teams/", teams.team_list, name="teams"),
    path("teams/new", teams.team_create, name="team_create"),
    path("teams/<slug:slug>/", teams.team_page, name="team"),
    path("teams/<slug:slug>/member", teams.member, name="member"),
    path("events/", events.event_list, name="events"),
    path("profile/", person.profile, name="profile"),
    path("tokens/", person.tokens, name="tokens"),
    path("help/", person.help_page, name="help"),
]
websocket_urlpatterns = [path(LIVE_PATH.removeprefix("/"), LiveConsumer.as_asgi())]
