package wire

import "google.golang.org/protobuf/encoding/protowire"

// CommandAt returns a command as a build decodes it that supports feature levels up to the
// given one only: without the operations that it does not know. Otherwise builds would differ
// about a command with several operations, of which the last counts, and about a malformed
// operation. A malformed command is returned as it is. The result may share memory with data.
//
// Levels 2 and 3 are no boundaries here: builds that know Refill decode it at every level.
func CommandAt(level uint32, data []byte) []byte {
	if level >= FeatureLevel {
		return data
	}
	known, changed := []byte(nil), false
	for rest := data; len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return data
		}
		switch {
		case level < operationLevel(number):
			if !changed {
				known, changed = append(known, data[:len(data)-len(rest)]...), true
			}
		case changed:
			known = append(known, rest[:n]...)
		}
		rest = rest[n:]
	}
	if !changed {
		return data
	}
	return known
}

// operationLevel is the level that has added a field to Command, from level 4 on.
func operationLevel(field protowire.Number) uint32 {
	switch field {
	case 23, 24: // register_client, renew_clients
		return LevelClient
	case 25, 26: // create_session, renew_session
		return LevelStandalone
	case 27: // downgrade
		return LevelShared
	case 28: // extend
		return LevelMaxHold
	case 29, 30: // lock_set, unlock_set
		return LevelSets
	case 31: // report_process
		return LevelProcess
	case 32, 33: // run_job, end_run
		return LevelJobs
	case 34, 35, 36, 37: // join_shards, leave_shards, release_shards, resize_shards
		return LevelShards
	case 38: // delete_job
		return LevelDeleteJob
	case 39, 40, 41, 42: // create_group, drop_group, follow_members, seal_group
		return LevelGroups
	}
	return 0
}
