package conclaveprom

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// describe returns the descriptions of all metrics, by name.
func describe() map[string]*prometheus.Desc {
	all := make(map[string]*prometheus.Desc)
	for _, descriptions := range [][]description{ofCalls(), ofLog(), ofGroup()} {
		for _, d := range descriptions {
			all[d.name] = prometheus.NewDesc("conclave_"+d.name, d.help, d.labels, nil)
		}
	}
	return all
}

// describeFurther returns the descriptions of the metrics of further groups, by the name of the same metric of the default group.
func describeFurther() map[string]*prometheus.Desc {
	all := make(map[string]*prometheus.Desc)
	for _, d := range ofFurther() {
		all[d.name] = prometheus.NewDesc("conclave_group_"+d.name, d.help, d.labels, nil)
	}
	return all
}

// ofFurther describes the metrics that each further group has, with a label for its name. What a process has once is not in it.
// They have names of their own: an expression that adds up or compares the series of the default group goes on to do that.
func ofFurther() (all []description) {
	once := []string{
		"write_duration_seconds", "disk_bytes", "disk_free_bytes", "disk_needed_bytes", "log_lines_dropped_total", "node_clients", "build_info", "live", "ready",
		"feature_level", "voter", "redundancy", "member_alive", "member_lag_entries",
	}
	for _, d := range slices.Concat(ofCalls(), ofLog(), ofGroup()) {
		if !slices.Contains(once, d.name) {
			all = append(all, description{d.name, d.help, append([]string{"group"}, d.labels...)})
		}
	}
	return all
}

type description struct {
	name, help string
	labels     []string
}

// ofCalls describes the metrics of calls of this process.
func ofCalls() []description {
	return []description{
		{"calls_total", "Calls that have returned, by kind and result.", []string{"call", "result"}},
		{"call_duration_seconds", "Time from call to return, with the wait for other owners.", []string{"call"}},
		{"calls_pending", "Calls of this process without an outcome.", nil},
		{"calls_pending_bytes", "Bytes of the commands of these calls.", nil},
		{"calls_refused_total", "Calls refused at once for the limits on pending calls.", nil},
		{"commands_resent_total", "Commands sent again, as their outcomes had not come in time.", nil},
		{"lingering_grants_total", "Grants of lingering locks to handles of this node.", nil},
		{"renewal_margin_seconds", "For how long a session of this node would have lasted when its renewal was acknowledged, but for its checks.", nil},
		{"node_holds", "Live holds of this node: locks, elections, permits, runs of jobs, shards, and locks that linger.", nil},
		{"holds_lost_total", "Holds that this node has lost.", nil},
		{"node_shards", "Shards that this node works on.", nil},
		{"shards_moved_total", "Shards that this node was asked to release, as they move or their number changes.", nil},
		{"shards_overdue_total", "Shards that this node has released before the work on them had returned, as it took longer than Grace.", nil},
		{"job_runs_total", "Runs of jobs that have ended in this process, by result: done, failed or lost. job_name is that of a measured job; empty: of all other jobs.", []string{"job_name", "result"}},
		{"log_lines_dropped_total", "Log lines that the application's logger did not take in time.", nil},
		{"node_sessions", "Live sessions of this node.", nil},
	}
}

// ofLog describes the metrics of the log and the disk.
func ofLog() []description {
	return []description{
		{"entry_commands", "Commands in each entry that this node has proposed as the leader.", nil},
		{"commit_duration_seconds", "Time from this leader's proposal of an entry until it is applied here.", nil},
		{"write_duration_seconds", "Time for a batch of writes to this node's disk.", nil},
		{"stalled_seconds", "For how long the oldest write to this node's disk, or entry of this leader, has been under way.", nil},
		{"commit_index", "Index of the last entry known to be committed.", nil},
		{"applied_index", "Index of the last entry applied here.", nil},
		{"snapshots_sent_total", "Snapshots that were sent to a member.", nil},
		{"snapshot_sent_bytes_total", "Bytes of keys and values of snapshots sent, also of those that failed.", nil},
		{"snapshots_installed_total", "Snapshots that have replaced this node's state.", nil},
		{"disk_bytes", "Size of the node's database.", nil},
		{"disk_free_bytes", "Bytes that the process may still write to the file system of the node's database; 0: in memory, or not known.", nil},
		{"disk_needed_bytes", "Bytes that the next logs, flush and compaction may take before they free anything.", nil},
	}
}

// ofGroup describes the metrics of the group, as this node sees it.
func ofGroup() []description {
	return []description{
		{"term", "Raft term.", nil},
		{"build_info", "1, with the version of conclave and of Go that the process was built with.", []string{"version", "goversion"}},
		{"feature_level", "The group's feature level, as far as entries are applied here.", nil},
		{"live", "1 if the process need not be restarted: Health.Live.", nil},
		{"ready", "1 if the node can serve: Health.Ready.", nil},
		{"has_leader", "1 if a leader is known.", nil},
		{"leads", "1 if this node is the leader.", nil},
		{"voter", "1 if this node votes, 0 if it is a standby.", nil},
		{"voters", "Members that vote, in the configuration that this node has.", nil},
		{"redundancy", "How many more voters may fail before the group has no quorum; negative: it has none.", nil},
		{"leader_changes_total", "Leaders that this node has followed, or was.", nil},
		{"group_time_seconds", "The group's own clock, as far as entries are applied here.", nil},
		{"member_alive", "1 if this node's failure detector considers the member alive.", []string{"member", "name"}},
		{"member_lag_entries", "Committed entries that a member has not acknowledged; only the leader has it.", []string{"member", "name"}},
		{"sessions", "Sessions of the group.", nil},
		{"locks", "Locks that are held or in a lock-delay.", nil},
		{"elections", "Elections that have a leader or are in a lock-delay.", nil},
		{"semaphores", "Semaphores in use, or with a limit from Resize.", nil},
		{"waiters", "Waiters in all queues of locks, elections and semaphores.", nil},
		{"shards", "Shards of all sets that processes work on.", nil},
		{"shards_without_owner", "Of these, shards that no process owns: between two owners, in a lock-delay, or waiting for the return of a process.", nil},
		{"shard_seconds_without_owner_total", "Time that shards were without an owner since this node was opened, added up over the shards, by a look at each heartbeat.", nil},
		{"job_last_success_age_seconds", "How long ago the last successful run of a measured job has ended, in whatever process; +Inf: none is known here.", []string{"job_name"}},
		{"keys", "Keys of the key/value store.", nil},
		{"checks", "Checks of the group.", nil},
		{"clients", "Clients that are registered in the group.", nil},
		{"node_clients", "Clients that are connected to this node.", nil},
	}
}
