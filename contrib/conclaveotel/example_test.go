package conclaveotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/conclaveotel"
)

func ExampleNewTracer() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter() // a program has one of OTLP, for example
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(exporter)))

	node, err := conclave.Open(ctx, &conclave.Config{
		Tracer: conclaveotel.NewTracer(otel.GetTracerProvider()),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)

	ctx, run := otel.Tracer("program").Start(ctx, "invoice run")
	err = node.FencedLock("invoices").Do(ctx, func(context.Context, conclave.Fence) error { return nil })
	run.End()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range exporter.GetSpans() {
		fmt.Println(s.Name, s.Parent.SpanID() == run.SpanContext().SpanID())
	}
	// Output:
	// conclave.lock true
	// conclave.unlock true
	// invoice run false
}
