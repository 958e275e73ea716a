//go:build linux

package main

import (
	"testing"
	"time"
)

const regularJob = "p/every/1/0"

// begins adds a run of a job with a period, all in milliseconds.
func (s *story) begins(hold string, call, begun int64, fence uint64) {
	ms := int64(time.Millisecond)
	s.add(hold, call*ms, begun*ms, record{Op: opRun, Name: regularJob, Hold: hold, Every: 100 * time.Millisecond}, resultOK, fence)
}

// over adds the end of a run, whose outcome is not known.
func (s *story) over(hold string, at int64, fence uint64) {
	s.add(hold, at*int64(time.Millisecond), never, record{Op: opEnd, Name: regularJob, Hold: hold, Fence: fence, Every: 100 * time.Millisecond}, resultUnknown, 0)
}

func TestCheckPeriods(t *testing.T) {
	expectTales(t, []tale{
		{"each a period after the one before", "", func(s *story) {
			s.begins("a", 1, 2, 1)
			s.over("a", 10, 1)
			s.begins("b", 3, 101, 2)
			s.over("b", 110, 2)
			s.begins("c", 12, 201, 3)
		}},
		{"the first was asked for long before", "", func(s *story) {
			s.begins("a", 1, 90, 1)
			s.over("a", 91, 1)
			s.begins("b", 50, 105, 2)
		}},
		{"within less than a period", "have begun within", func(s *story) {
			s.begins("a", 10, 12, 1)
			s.over("a", 13, 1)
			s.begins("b", 13, 60, 2)
		}},
		{"three in a period", "3 runs", func(s *story) {
			s.begins("a", 1, 90, 1)
			s.over("a", 91, 1)
			s.begins("b", 50, 105, 2)
			s.over("b", 106, 2)
			s.begins("c", 100, 150, 3)
		}},
		{"a run of a key within the time", "", func(s *story) {
			s.begins("a", 10, 12, 1)
			s.over("a", 13, 1)
			s.add("b", 14*int64(time.Millisecond), 15*int64(time.Millisecond), record{Op: opRun, Name: oneKey, Hold: "b"}, resultOK, 2)
		}},
	})
}
