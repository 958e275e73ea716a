package conclave

import "testing"

// Without a tracer a call makes nothing for it.
func TestTracing_Off(t *testing.T) {
	l := &FencedLock{group: new(Group), name: "x"}
	p := &Permit{group: l.group, name: "s"}
	allocated := testing.AllocsPerRun(100, func() {
		s := l.span(t.Context(), CallLock, "lock")
		s.granted(1, l)
		s.end(nil)
		if s != nil || s.trace() != nil || p.span(t.Context(), CallRelease, "release") != nil {
			t.Error("a span without a tracer")
		}
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

func TestSpanEventKind_String(t *testing.T) {
	for kind, want := range map[SpanEventKind]string{
		SpanQueued: "queued", SpanGranted: "granted", SpanLost: "lost", 0: "SpanEventKind(0)", 9: "SpanEventKind(9)",
	} {
		if got := kind.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
