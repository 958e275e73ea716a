// Package sim is a deterministic simulator of whole groups. It has tests only.
//
// A simulation runs the production core, machine, raftlog and Pebble of 1 to 5
// members on one goroutine, with a simulated network, disks, clocks and programs.
// One seed decides everything, so every failure can be repeated:
//
//	go test ./internal/sim -run TestSeeds -seeds 300 -first 1
//	go test ./internal/sim -run TestSeeds -seed 7 -v      one run, with its trace
//
// The parts:
//
//   - Simulator: simulation_test.go and schedule_test.go, the queue of events.
//   - Members: member_test.go and driver_test.go run a core as the loop and the
//     writer do in production; snapshot_test.go streams a state to a peer.
//   - Clients, processes that are no members: gateway_test.go, how a program reaches its
//     group; remote_test.go and remote_send_test.go, a client; serving_test.go, the member
//     that serves it; connection_test.go, what is between them.
//   - Environment: network_test.go, clock_test.go, and the disk of member_test.go.
//   - Nemesis: fault_test.go chooses and schedules the faults; network_fault_test.go,
//     disk_fault_test.go and removal_test.go carry them out; remote_fault_test.go has those
//     of clients.
//   - Further groups: groups_test.go, each a simulation beside that of the default group, on the same hosts;
//     hosted_groups_test.go and following_members_test.go do what a process does with them,
//     disk_write_test.go writes their logs in shared batches, group_plan_test.go creates and deletes them,
//     group_fault_test.go has their faults, group_admission_test.go compares what a process has of each
//     log with what others know.
//   - Quiet groups: rest_test.go, whose programs rest, and the faults meanwhile; host_connection_test.go, the
//     connections by which quiet members learn of each other; quiet_test.go checks what they agree on,
//     quiet_use_test.go that they serve when they are needed.
//   - Workload: program_test.go, with sessions (session_test.go, and
//     session_nottl_test.go for those that outlive processes), handles of locks,
//     elections and semaphores (handle_test.go), with MaxHold (handle_maxhold_test.go), sets of locks
//     (handle_set_test.go), transactions on keys
//     (key_write_test.go), health checks (health_check_test.go), jobs (handle_job_test.go) and
//     workers of shards (shard_worker_test.go, shard_task_test.go, shard_follow_test.go).
//
// Three checkers are independent of each other:
//
//   - The log: history_test.go and reference_test.go compare every result and every
//     outcome with the committed log, replayed by a machine and by the reference
//     model. durable_test.go checks that no message promises what is not durable, and
//     delivery_test.go that a client is delivered all of the log that is meant for it.
//   - The promises: audit_test.go, audit_keys_test.go, audit_maxhold_test.go, audit_set_test.go,
//     audit_job_test.go and audit_queue_test.go check
//     each command of the log against the documented promises; audit_shard_test.go and
//     shard_balance_test.go, with the model of shard_model_test.go, also what is planned at the end
//     of an entry. audit_entry_test.go separates an entry into its commands.
//   - The clients: client_history_test.go records calls and replies, without the log;
//     linearizability_test.go searches an order that lock_model_test.go,
//     permit_model_test.go or key_model_test.go accepts, first with order_search_test.go and
//     then with porcupine; for sets, set_projection_test.go.
//
// Scripted simulations (scripted_test.go) have no random faults: lock_delay_test.go, group_deletion_test.go,
// session_ttl_test.go, maxhold_test.go, release_wakeup_test.go, regression_test.go.
//
// docs/TESTING.md describes workload, faults and checkers in full.
package sim
