package sim

import (
	"testing"
	"testing/cryptotest"
	"time"
)

// What seeds do not find by chance, or found once.

// The first founder of a new group asks for votes again and again, and the
// votes take longer than a heartbeat to come.
func TestFirstElectionOverSlowNetwork(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	w := newWorld(t, 1)
	w.begin(3, faults{w: w, keep: 1000})
	defer w.end()
	w.network.quickest, w.network.slowest = 120*time.Millisecond, 150*time.Millisecond
	w.await(5*time.Second, "leader", func() bool { return len(w.history.leaders) > 0 })
	w.calm = true
	w.await(peace, "rest", w.settled)
	if term := w.members[0].life.core.Status().Term; term > 6 {
		t.Errorf("it took until term %d", term)
	}
}

// A process registers and is cut off before it hears of it. When it is back the
// group has forgotten the registration, and a snapshot has taken the place of
// the entry that said so. It is neither a copied directory's nor does it wait
// for an outcome that has gone: it registers anew. (Seed 5002 once found this.)
func TestRegistrationForgottenBeforeItIsHeardOf(t *testing.T) {
	const late = 2
	w := scriptedWorld(t, 1, 3, faults{keep: 3})
	w.register(0)
	w.program(0).keepRenewing(time.Second)
	p := w.program(late)
	first := p.incarnation
	for other := range late {
		w.network.cut[other][late] = true // it can be heard, and hears nothing
	}
	p.register()
	w.await(election, "registration in the log", func() bool { return w.history.oracle.Incarnation(first) })
	w.cutOff(late)
	w.await(2*incarnationTTL, "end of the incarnation", func() bool { return !w.history.oracle.Incarnation(first) })
	w.pass(10 * time.Second)
	w.network.reset()
	w.await(2*election+incarnationTTL, "another registration", func() bool { return p.registered })
	if p.life.core.Status().Installed == 0 {
		t.Error("it took no snapshot: the log has told it")
	}
	if p.incarnation == first || !w.history.oracle.Incarnation(p.incarnation) {
		t.Errorf("registered as %s, after %s", p.incarnation, first)
	}
}
