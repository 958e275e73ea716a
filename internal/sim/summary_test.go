package sim

import (
	"fmt"
	"time"
)

// summary is what runs of the simulator have checked.
type summary struct {
	time                time.Duration // simulated
	messages, crashes   int
	flips, diverged     int // bits flipped in memory; stops of members whose states differed
	decided             int // disputes that an operator has ended
	crashReports        int // recorded
	deaths, earlyDeaths int // of registered processes: recorded; reported too soon after a renewal
	tenures, recalls    int // begun; recalls that a process has got
	local, refills      int // grants in tenures; blocks of fences besides the first
	modes               modes
	ends                ends
	sets                sets
	claims              claims
	jobs                jobCounts
	shards              shardCounts
	tasks               taskCounts
	remote              remoteCounts
	groups              groupCounts
	entries, outcomes   int // compared with the reference model
	operations, pending int // searched in client histories; of these: without an outcome
	partitions, unknown int
}

func (s *summary) add(sim *simulation) *summary {
	s.time += sim.now
	s.addGroup(sim)
	for _, g := range sim.further {
		s.addGroup(g)
		s.groups.add(g)
	}
	s.groups.forgotten += sim.forgotten
	s.groups.disks.add(sim.disks.counts)
	return s
}

func (s *summary) addGroup(sim *simulation) {
	h, reference := sim.clients, sim.history.reference
	for _, n := range sim.traffic.messages { // order: a sum
		s.messages += n
	}
	s.crashes += sim.crashes
	s.flips += sim.flips
	s.diverged += sim.diverged
	s.decided += sim.decided
	s.deaths += sim.deaths
	s.crashReports += sim.crashReports
	s.earlyDeaths += sim.earlyDeaths
	s.tenures += sim.tenures
	s.recalls += sim.recalls
	s.local += sim.local
	s.refills += sim.refills
	s.remote.add(sim.remote)
	s.modes.add(sim.modes)
	s.ends.add(sim.ends)
	s.sets.add(sim.sets)
	s.claims.add(sim.claims)
	s.jobs.add(sim.jobs)
	s.shards.add(sim.shards)
	s.tasks.add(sim.tasks)
	s.entries += len(reference.results)
	s.outcomes += reference.compared
	s.operations += h.checked
	s.pending += h.pending
	s.partitions += h.partitions
	s.unknown += h.unknown
}

func (s summary) String() string {
	return fmt.Sprintf("%.1f min, %d messages, %d crashes, %d flipped bits, %d stops for these, %d disputes ended by an operator, %d recorded deaths, %d reported too soon, %d recorded crashes; %d grants in %d tenures, with %d recalls and %d more blocks; holds of locks %+v; MaxHold %+v; sets %+v; claims of sets %+v; jobs %+v; shards %+v; tasks %+v; clients %+v; further groups %+v; %d entries and %d outcomes equal to the reference model; "+
		"%d operations searched, %d of them without an outcome; %d of %d searches given up (unknown)",
		s.time.Minutes(), s.messages, s.crashes, s.flips, s.diverged, s.decided, s.deaths, s.earlyDeaths, s.crashReports, s.local, s.tenures, s.recalls, s.refills, s.modes, s.ends, s.sets, s.claims, s.jobs, s.shards, s.tasks, s.remote, s.groups, s.entries, s.outcomes, s.operations, s.pending, s.unknown, s.partitions)
}
