package main

import (
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"

	pprofile "github.com/google/pprof/profile"
)

// callerLabels marks the goroutines of callers in profiles. Those of a member have labels of their own.
var callerLabels = pprof.Labels("bench", "caller")

// divide returns the share of each task in a CPU profile of a member's process.
func divide(text []byte) (shares [tasks]float64, err error) {
	p, err := pprofile.ParseData(text)
	if err != nil {
		return shares, fmt.Errorf("profile: %w", err)
	}
	var sum float64
	for _, s := range p.Sample {
		value := float64(s.Value[len(s.Value)-1]) // the last type is the processor time
		shares[taskOf(s)] += value
		sum += value
	}
	for t := range shares {
		shares[t] /= max(sum, 1)
	}
	return shares, nil
}

// taskOf tells tasks apart by the labels of goroutines. Pebble's inherit that of the storage goroutine, which opens the database.
func taskOf(s *pprofile.Sample) task {
	has := func(key, value string) bool { return slices.Contains(s.Label[key], value) }
	switch {
	case has("bench", "caller"):
		return calling
	case has("goroutine", "loop"):
		return looping
	case has("conclave", "transport"):
		return connecting
	case has("conclave", "storage") && !inBackground(s):
		return storing
	}
	return remaining
}

// inBackground reports whether a sample is of a flush or compaction, for which the storage goroutine does not wait.
func inBackground(s *pprofile.Sample) bool {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if name := line.Function.Name; strings.HasSuffix(name, "(*DB).flush") || strings.HasSuffix(name, "(*DB).compact") {
				return true
			}
		}
	}
	return false
}
