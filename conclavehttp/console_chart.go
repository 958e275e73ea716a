package conclavehttp

import (
	"fmt"
	"strings"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	chartSpan             = 2 * time.Minute
	chartWidth, chartHigh = 240, 60 // of each plot, in units of its own
)

// chart has the grants and latencies of the last minutes, as far as browsers were connected.
type chart struct {
	points []point
	last   totals
}

// point is what happened between two samples.
type point struct {
	at          time.Time
	grants      float64 // per second
	calls       uint64
	p50, p99    float64 // seconds
	hasPrevious bool    // the sample before is not much older, so that a line joins them
}

// totals is a sample.
type totals struct {
	at      time.Time
	grants  uint64
	latency conclave.Histogram
}

// sample adds up what the chart shows. Of calls that wait for other owners, the latency is
// theirs; so it shows those that wait for the group only.
func sample(now time.Time, m conclave.Metrics) totals {
	t := totals{at: now}
	for _, c := range m.Calls {
		switch c.Kind {
		case conclave.CallLock, conclave.CallTryLock, conclave.CallRLock, conclave.CallTryRLock, conclave.CallAcquire, conclave.CallTryAcquire, conclave.CallCampaign, conclave.CallStartRun:
			t.grants += c.Results[conclave.ResultOK]
		case conclave.CallUnlock, conclave.CallRUnlock, conclave.CallDowngrade, conclave.CallExtend, conclave.CallRelease, conclave.CallResign, conclave.CallEndRun, conclave.CallReleaseShards, conclave.CallWrite:
			if t.latency.Counts == nil {
				t.latency = conclave.Histogram{Bounds: c.Seconds.Bounds, Counts: make([]uint64, len(c.Seconds.Counts))}
			}
			for i, n := range c.Seconds.Counts {
				t.latency.Counts[i] += n
			}
		}
	}
	return t
}

func (c *chart) add(now time.Time, m conclave.Metrics) {
	s := sample(now, m)
	since := now.Sub(c.last.at)
	if !c.last.at.IsZero() && since < refresh/2 {
		return // few calls in a short time are no rate
	}
	if !c.last.at.IsZero() && since < 10*refresh {
		p := point{at: now, grants: float64(s.grants-c.last.grants) / since.Seconds()}
		delta := conclave.Histogram{Bounds: s.latency.Bounds, Counts: make([]uint64, len(s.latency.Counts))}
		for i := range delta.Counts {
			delta.Counts[i] = s.latency.Counts[i] - c.last.latency.Counts[i]
		}
		p.calls, p.p50, p.p99 = delta.Count(), quantile(delta, 0.5), quantile(delta, 0.99)
		if n := len(c.points); n > 0 {
			p.hasPrevious = c.points[n-1].at.Equal(c.last.at)
		}
		c.points = append(c.points, p)
	}
	c.last = s
	for len(c.points) > 0 && now.Sub(c.points[0].at) > chartSpan {
		c.points = c.points[1:]
	}
}

// quantile estimates a quantile by the bucket that it falls into.
func quantile(h conclave.Histogram, q float64) float64 {
	rank := q * float64(h.Count())
	below := 0.0
	for i, n := range h.Counts {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		low, high := 0.0, h.Bounds[min(i, len(h.Bounds)-1)]
		if i > 0 {
			low = h.Bounds[i-1]
		}
		return low + (high-low)*max(0, rank-below)/float64(n)
	}
	return 0
}

// plot is the chart as paths of SVG, and its numbers as text.
type plot struct {
	Grants, GrantsMax    string // the latest, and the largest
	P50, P99, LatencyMax string
	Area, Line50, Line99 string
	Width, High          int
	Empty                bool
}

func (c *chart) plot(now time.Time) plot {
	p := plot{Width: chartWidth, High: chartHigh, Empty: len(c.points) == 0, Grants: "–", P50: "–", P99: "–"}
	if p.Empty {
		return p
	}
	mostGrants, mostSeconds := 1.0, 0.001
	for _, q := range c.points {
		mostGrants, mostSeconds = max(mostGrants, q.grants), max(mostSeconds, q.p99)
	}
	p.Area = c.path(now, true, func(q point) (float64, bool) { return q.grants / mostGrants, true })
	p.Line50 = c.path(now, false, func(q point) (float64, bool) { return q.p50 / mostSeconds, q.calls > 0 })
	p.Line99 = c.path(now, false, func(q point) (float64, bool) { return q.p99 / mostSeconds, q.calls > 0 })
	p.GrantsMax, p.LatencyMax = rate(mostGrants), milliseconds(mostSeconds)
	last := c.points[len(c.points)-1]
	if !last.at.Equal(c.last.at) {
		return p // what was measured before a gap is not the present
	}
	p.Grants = rate(last.grants)
	if last.calls > 0 {
		p.P50, p.P99 = milliseconds(last.p50), milliseconds(last.p99)
	}
	return p
}

// path draws the points. A gap in them is one in the line.
func (c *chart) path(now time.Time, area bool, height func(point) (share float64, ok bool)) string {
	var b strings.Builder
	x := func(at time.Time) float64 { return chartWidth * (1 - now.Sub(at).Seconds()/chartSpan.Seconds()) }
	drawing := false
	var end float64
	stop := func() {
		if drawing && area {
			fmt.Fprintf(&b, "V%dZ", chartHigh)
		}
		drawing = false
	}
	for _, q := range c.points {
		share, ok := height(q)
		if !q.hasPrevious || !ok {
			stop()
		}
		if !ok {
			continue
		}
		y := (chartHigh - 2) * (1 - share)
		switch end = x(q.at); {
		case drawing:
			fmt.Fprintf(&b, "L%.1f %.1f", end, y+1)
		case area:
			fmt.Fprintf(&b, "M%.1f %dV%.1f", end, chartHigh, y+1)
		default:
			fmt.Fprintf(&b, "M%.1f %.1fh.1", end, y+1) // visible if it stays alone
		}
		drawing = true
	}
	stop()
	return b.String()
}

func rate(perSecond float64) string {
	if perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return number(int(perSecond + 0.5))
}

func milliseconds(seconds float64) string {
	if seconds < 0.01 {
		return fmt.Sprintf("%.2f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.0f ms", 1000*seconds)
}
