package machine

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// printRun prints what a reply says of a run.
func printRun(r *wire.Run) string {
	if r == nil {
		return ""
	}
	s := fmt.Sprintf(" run %v", r.Result)
	if r.Attempt != 0 {
		s += fmt.Sprintf(" attempt=%d", r.Attempt)
	}
	if len(r.Session) > 0 {
		s += fmt.Sprintf(" fence=%d by %s of %s, started %v ago", r.Fence, printID(makeID(string(r.Session))), printMember(r.Member, r.Client), time.Duration(r.Started))
	}
	if r.Ended != 0 {
		s += fmt.Sprintf(", ended %v ago", time.Duration(r.Ended))
	}
	if r.Detail != "" {
		s += fmt.Sprintf(" %q", r.Detail)
	}
	return s
}

// printJob prints a job with the runs that it retains.
func printJob(w io.Writer, v JobView) {
	fmt.Fprintf(w, "%s: %d periods, %d running, %d waiting\n", v.Name, v.Periods, v.Running, v.Waiting)
	for _, r := range v.Runs {
		key := r.Key
		if r.Period != 0 {
			key = fmt.Sprintf("period %d", r.Period)
		}
		fmt.Fprintf(w, "  %s: %v attempt=%d fence=%d by %s of %s, started %v ago", key, r.Result, r.Attempt, r.Fence, printID(r.Session), printMember(r.Member, r.Client), time.Duration(r.Started))
		if r.Ended != 0 {
			fmt.Fprintf(w, ", ended %v ago", time.Duration(r.Ended))
		}
		if r.Detail != "" {
			fmt.Fprintf(w, " %q", r.Detail)
		}
		if r.Due != 0 {
			fmt.Fprintf(w, ", the next one is due in %v", time.Duration(r.Due))
		}
		fmt.Fprintln(w)
	}
}

func printJobs(w io.Writer, m *Machine) {
	for _, v := range allJobs(m) {
		printJob(w, v)
	}
}

// allJobs returns all jobs with their runs.
func allJobs(m *Machine) (all []JobView) {
	for after := ""; ; {
		page := Ask[[]JobView](m, JobsQuery{After: after})
		if len(page) == 0 {
			return all
		}
		for _, v := range page {
			all = append(all, *Ask[*JobView](m, JobQuery{v.Name}))
		}
		after = page[len(page)-1].Name
	}
}

// printJobKey prints the durable key of a job, of its lock or of a run.
func printJobKey(k string) string {
	if job, number, every := strings.Cut(k, "\x00\x00"); k[0] == 'r' && every {
		return fmt.Sprintf("r %s period %d", job[1:], binary.BigEndian.Uint64([]byte(number)))
	}
	return k[:1] + " " + strings.ReplaceAll(k[1:], "\x00", "/")
}
