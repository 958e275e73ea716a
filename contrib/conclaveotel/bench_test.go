package conclaveotel_test

import (
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/conclaveotel"
)

// BenchmarkCycle measures lock and unlock in a group of one in memory, of a lock that lingers,
// which does not ask the group, and of one that does not: without a tracer, with one whose
// sampler drops all calls, and with one that records all and exports none.
//
//	go test -run '^$' -bench Cycle -benchmem .
func BenchmarkCycle(b *testing.B) {
	for _, tracer := range []struct {
		name string
		conclave.Tracer
	}{
		{"none", nil},
		{"dropped", conclaveotel.NewTracer(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())))},
		{"recorded", conclaveotel.NewTracer(sdk.NewTracerProvider())},
	} {
		for _, lingers := range []bool{true, false} {
			name, linger := "lingering/", time.Hour
			if !lingers {
				name, linger = "plain/", 0
			}
			b.Run(name+tracer.name, func(b *testing.B) { cycle(b, tracer.Tracer, linger) })
		}
	}
}

func cycle(b *testing.B, tracer conclave.Tracer, linger time.Duration) {
	n, err := conclave.Open(b.Context(), &conclave.Config{Tracer: tracer})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close(b.Context())
	l := n.FencedLock("x", conclave.Linger(linger))
	for lingering := linger == 0; !lingering; { // once the group has raised its feature level
		again(b, l)
		info, err := l.Info(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		lingering = info.Lingering
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		again(b, l)
	}
	b.StopTimer()
}

func again(b *testing.B, l *conclave.FencedLock) {
	if _, err := l.Lock(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := l.Unlock(b.Context()); err != nil {
		b.Fatal(err)
	}
}
