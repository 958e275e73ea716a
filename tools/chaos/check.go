//go:build linux

package main

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchLimit bounds one search for a linearization. One that takes longer is unknown,
// which is not a pass.
const searchLimit = 20 * time.Second

// verdict is what the checkers found.
type verdict struct {
	searches   int
	unknown    []string // names whose search was given up
	violations []string
	refused    int // writes that the resource refused: late ones of earlier holders
}

func (v *verdict) violation(format string, args ...any) {
	v.violations = append(v.violations, fmt.Sprintf(format, args...))
}

// checkAll runs all checkers. largest has the largest fences that the groups have granted before.
func checkAll(ops []*operation, writes []write, largest map[string]uint64) verdict {
	var v verdict
	var searches []search
	stories := byGroup(ops, writes)
	for _, g := range stories {
		searches = append(searches, v.checkGroup(g, largest[g.name])...)
	}
	checkForced(&v, stories, largest)
	checkBrief(&v, ops)
	checkCreations(&v, ops)
	v.run(searches)
	return v
}

// checkGroup runs the checkers of one group, and returns the searches: no two groups have a lock, a fence or an index in common.
func (v *verdict) checkGroup(g *groupStory, largest uint64) (searches []search) {
	var found verdict
	single := singles(g.ops)
	checkFences(&found, single, largest)
	if !isForced(g.name) {
		checkResource(&found, single, g.writes)
	}
	checkAnswers(&found, g.ops)
	checkEnds(&found, g.ops)
	checkSets(&found, g.ops)
	checkTogether(&found, single)
	checkTaken(&found, g.ops, single)
	checkMoves(&found, g.ops)
	checkJobs(&found, g.ops)
	checkPeriods(&found, g.ops)
	checkFound(&found, g)
	v.add(g.name, found)
	for name, of := range byName(single) {
		s := searchOf(name, of)
		if g.name != defaultGroup {
			s.name = g.name + ": " + name
		}
		searches = append(searches, s)
	}
	// The order of the report is that of names.
	slices.SortFunc(searches, func(a, b search) int { return cmp.Compare(a.name, b.name) })
	return searches
}

// closedClient is the text of the ErrClosed of a client that is no member.
const closedClient = "client is closed"

// checkAnswers finds answers that no state explains.
func checkAnswers(v *verdict, ops []*operation) {
	for _, op := range ops {
		if op.result == resultNotHeld {
			v.violation("a hold that was granted and not released is not held: %v", op)
		}
		if strings.Contains(op.err, closedClient) { // it is closed after the last call
			v.violation("a client that is not closed reports that it is: %v", op)
		}
	}
}

// byName partitions the operations of a group.
func byName(ops []*operation) map[string][]*operation {
	names := make(map[string][]*operation)
	for _, op := range ops {
		names[op.Name] = append(names[op.Name], op)
	}
	return names
}

// search is one history for porcupine. With floating operations it is searched only
// if there is no linearization without them.
type search struct {
	name     string
	model    porcupine.Model
	ops      []porcupine.Operation
	floating []porcupine.Operation // unknown and not observed
}

// searchOf returns the search over the operations on one name.
func searchOf(name string, ops []*operation) search {
	if inBothModes(ops[0]) {
		return sharedSearch(name, ops)
	}
	switch ops[0].Op {
	case opLock, opTry, opUnlock, opCheck, opExtend, opOwn, opReturn, opOwner, opRun, opEnd:
		return lockSearch(name, ops)
	case opAcquire, opRelease, opConfirm:
		return permitSearch(name, ops)
	}
	return keySearch(name, ops)
}

// run runs the searches, on half of the processors: other work goes on meanwhile.
func (v *verdict) run(searches []search) {
	results := make([]result, len(searches))
	turns := make(chan struct{}, max(1, runtime.NumCPU()/2))
	var running sync.WaitGroup
	for i := range searches {
		turns <- struct{}{}
		running.Go(func() {
			results[i] = searches[i].run()
			<-turns
		})
	}
	running.Wait()
	for i, r := range results {
		v.searches++
		switch {
		case r.outcome == porcupine.Unknown:
			v.unknown = append(v.unknown, searches[i].name)
		case r.outcome == porcupine.Illegal:
			v.violation("%s"+notLinearizable+"%s", searches[i].name, r.explanation)
		}
	}
}

const notLinearizable = " is not linearizable: "

type result struct {
	outcome     porcupine.CheckResult
	explanation string
}

func (s search) run() result {
	all := s.ops
	outcome := porcupine.CheckOperationsTimeout(s.model, all, searchLimit)
	if outcome != porcupine.Ok && len(s.floating) > 0 {
		all = append(slices.Clone(all), s.floating...)
		outcome = porcupine.CheckOperationsTimeout(s.model, all, searchLimit)
	}
	if outcome != porcupine.Illegal {
		return result{outcome: outcome}
	}
	return result{outcome, explain(s.model, all)}
}

// explain describes the longest partial linearization and what cannot follow it.
func explain(model porcupine.Model, ops []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, ops, searchLimit)
	var longest []porcupine.Operation
	for _, partials := range info.PartialLinearizationsOperations() {
		for _, partial := range partials {
			if len(partial) > len(longest) {
				longest = partial
			}
		}
	}
	used := make(map[any]bool)
	state := model.Init()
	var text strings.Builder
	fmt.Fprintf(&text, "after %d of %d operations none can follow", len(longest), len(ops))
	for i, p := range longest {
		used[p.Input] = true
		if i >= len(longest)-5 {
			fmt.Fprintf(&text, "\n      state %+v, then %v", state, p.Input)
		}
		_, state = model.Step(state, p.Input, nil)
	}
	fmt.Fprintf(&text, "\n      state %+v, and none of:", state)
	rest := slices.DeleteFunc(slices.Clone(ops), func(p porcupine.Operation) bool { return used[p.Input] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, p := range rest[:min(5, len(rest))] {
		fmt.Fprintf(&text, "\n      %v", p.Input)
	}
	return text.String()
}

// ordered returns for each of some numbers the next smaller one, 0 for the smallest.
// Fences and modify indexes increase, so that what has the number n must follow what
// has the next smaller one. With that a model has no choices left, and finds the same
// linearizations.
func ordered(numbers map[uint64]bool) map[uint64]uint64 {
	previous := make(map[uint64]uint64)
	last := uint64(0)
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		previous[n], last = last, n
	}
	return previous
}
