package crash

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// player plays events about member 7.
type player struct {
	*Evidence
	open map[string][]func(endedByHost bool) // by the events that have opened them, from the oldest
}

func newPlayer(changed func()) *player {
	return &player{NewEvidence(changed), make(map[string][]func(bool))}
}

// play carries out a sequence of events and returns the evidence. An event is
//
//	in, out          a connection from the process, or to it; "in 2" and "out 2" of its second start
//	-in, -out        the oldest one is ended by the host of the process
//	!in, !out        it is ended otherwise: here, or by a timeout
//	refused, other   a dial is refused, or has another end
//	forget
//	wait             the lifetime of evidence passes
func (p *player) play(events string) string {
	for event := range strings.SplitSeq(events, ", ") {
		name, start, _ := strings.Cut(event, " ")
		boot := uint64(1)
		if start != "" {
			boot = 2
		}
		side := Inbound
		if strings.HasSuffix(name, "out") {
			side = Outbound
		}
		switch strings.TrimSuffix(strings.TrimSuffix(name, "in"), "out") {
		case "":
			p.open[event] = append(p.open[event], p.Opened(Process{7, boot}, wire.ID{byte(boot)}, side))
		case "-", "!":
			opened := event[1:]
			p.open[opened][0](name[0] == '-')
			p.open[opened] = p.open[opened][1:]
		case "refused", "other":
			p.Dialed(7, name == "refused")
		case "forget":
			p.Forget(7)
		case "wait":
			time.Sleep(Lifetime)
		default:
			panic(event)
		}
	}
	return fmt.Sprint(p.Crashed())
}

func TestEvidence(t *testing.T) {
	const none, first, second = "[]", "[{7 1}]", "[{7 2}]"
	for events, want := range map[string]string{
		"in, out, -out, -in, refused":            first,
		"in, -in, refused":                       first, // it was never reached: the address is right all the same
		"out, -out, refused":                     first,
		"in, out, -out, refused":                 none, // it is still connected
		"in, out, -out, -in":                     none, // nothing was refused
		"refused":                                none, // it was never connected
		"refused, in, -in":                       none, // refused before
		"in, out, -out, -in, other":              none,
		"in, out, -out, -in, refused, other":     none,
		"in, out, !out, -in, refused":            none, // ended by a timeout, or by this member
		"in, out, -out, !in, refused":            none,
		"in, in, !in, -in, refused":              first, // a newer connection has taken the place of an older one
		"in, in, -in, !in, refused":              none,
		"in, in, -in, refused":                   none,
		"in, -in, refused, in":                   none,
		"in, -in, refused, in, -in":              none, // the dial was before
		"in, -in, refused, in, -in, refused":     first,
		"in, !in, refused, out, -out, refused":   none, // how the last one from it has ended, this member does not know
		"in, !in, out, in, -in, -out, refused":   first,
		"in, -in, refused, out 2":                none,
		"in, -in, refused, out 2, -out 2":        none,
		"in, in 2, -in 2, refused":               second,
		"in, in 2, -in, refused":                 none, // the end of an earlier process says nothing of the later one
		"in, !in, in 2, -in 2, refused":          second,
		"in, -in, refused, wait":                 none,
		"in, -in, refused, wait, refused":        first,
		"in, -in, refused, forget":               none,
		"in, forget, -in, refused":               none,
		"in, forget, in, -in, refused":           none, // the end of an earlier connection says nothing of a later one
		"in, -in, forget, refused, out, -out":    none,
		"in, out, -out, -in, refused, refused":   first,
		"in, out, -out, refused, -in, refused":   first,
		"in, out, -out, refused, -in":            none,
		"out, -out, refused, in, !in, other, in": none,
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := newPlayer(func() {}).play(events); got != want {
				t.Errorf("%s: %s, want %s", events, got, want)
			}
		})
	}
}

// A change is reported when there is evidence, and when there is none any more; a repeated refusal is none.
func TestEvidence_Changed(t *testing.T) {
	n := 0
	p := newPlayer(func() { n++ })
	for _, row := range []struct {
		events string
		want   int
	}{{"in, out, -in, -out", 0}, {"refused", 1}, {"refused", 1}, {"other", 2}, {"other", 2}, {"refused", 3}, {"in 2", 4}, {"-in 2, refused, forget", 6}} {
		if p.play(row.events); n != row.want {
			t.Errorf("%s: %d changes, want %d", row.events, n, row.want)
		}
	}
}

func TestEvidence_Connected(t *testing.T) {
	for events, want := range map[string][]bool{ // the first start, the second
		"other": {false, false}, "in": {true, false}, "out": {true, false}, "in, -in": {false, false}, "in, out, -in": {true, false}, "in, in 2": {false, true},
		"in, forget, in, -in": {true, false},
	} {
		p := newPlayer(func() {})
		p.play(events)
		if got := []bool{p.Connected(Process{7, 1}), p.Connected(Process{7, 2})}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", events, got, want)
		}
	}
}
