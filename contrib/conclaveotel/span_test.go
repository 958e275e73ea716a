package conclaveotel

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/conclave-go/conclave"
)

func begin(t *testing.T, sampler sdk.Sampler, op conclave.Operation) (conclave.Span, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSampler(sampler), sdk.WithSpanProcessor(recorder))
	return NewTracer(provider).Begin(t.Context(), op), recorder
}

// The bytes of a release come from other processes, and may be anything.
func TestSpan_HostileCause(t *testing.T) {
	const sound = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for cause, links := range map[string]int{
		sound: 1,
		"":    0,
		"00-00000000000000000000000000000000-0000000000000000-01": 0,
		strings.ToUpper(sound):              0,
		sound[:54]:                          0,
		sound + "\x00":                      0,
		strings.Repeat("\xff", 64):          0,
		"ff" + sound[2:]:                    0,
		strings.Replace(sound, "-", ";", 1): 0,
	} {
		s, recorder := begin(t, sdk.AlwaysSample(), conclave.Operation{Kind: conclave.CallLock, Op: "lock", Name: "x"})
		s.Event(conclave.SpanEvent{Kind: conclave.SpanGranted, Fence: 7, Cause: []byte(cause)})
		s.End(nil)
		ended := recorder.Ended()[0]
		if len(ended.Links()) != links || len(ended.Events()) != 1 {
			t.Errorf("%q: links %+v, events %+v", cause, ended.Links(), ended.Events())
		}
	}
}

// What a span carries is what another one links to; it fits into a release.
func TestSpan_Carrier(t *testing.T) {
	s, _ := begin(t, sdk.AlwaysSample(), conclave.Operation{Kind: conclave.CallUnlock, Op: "unlock", Name: "x"})
	carrier := s.Carrier()
	if len(carrier) != 55 {
		t.Errorf("%d bytes: %q", len(carrier), carrier)
	}
	if got := released(carrier); !got.Equal(s.(span).SpanContext().WithRemote(true)) {
		t.Errorf("%+v, want %+v", got, s.(span).SpanContext())
	}
}

// onlyRecorded samplers have spans recorded that are not exported.
type onlyRecorded struct{ sdk.Sampler }

func (onlyRecorded) ShouldSample(sdk.SamplingParameters) sdk.SamplingResult {
	return sdk.SamplingResult{Decision: sdk.RecordOnly}
}

// A call that is not sampled is not traced, and what is not exported is not linked to.
func TestTracer_Sampling(t *testing.T) {
	op := conclave.Operation{Kind: conclave.CallUnlock, Op: "unlock", Name: "x"}
	if s, recorder := begin(t, sdk.NeverSample(), op); s != nil || len(recorder.Started()) != 0 {
		t.Errorf("a dropped call has the span %v", s)
	}
	if s, _ := begin(t, onlyRecorded{}, op); s.Carrier() != nil {
		t.Errorf("a span that is not sampled carries %q", s.Carrier())
	}
}

func TestSpan_Lost(t *testing.T) {
	s, recorder := begin(t, sdk.AlwaysSample(), conclave.Operation{Kind: conclave.CallUnlock, Op: "unlock", Name: "x", Fence: 7})
	s.Event(conclave.SpanEvent{Kind: conclave.SpanLost, Fence: 7})
	s.End(&conclave.Error{Op: "unlock", Name: "x", Err: conclave.ErrLockOwnershipLost})
	ended := recorder.Ended()[0]
	if e := ended.Events(); len(e) != 1 || e[0].Name != "lost" || e[0].Attributes[0] != fence(7) {
		t.Errorf("events %+v", e)
	}
	if ended.Status().Code != codes.Error || ended.Status().Description != `conclave: unlock "x": lock ownership lost` {
		t.Errorf("status %+v", ended.Status())
	}
}

func TestClassify(t *testing.T) {
	for want, err := range map[string]error{
		"unknown":             fmt.Errorf("%w: %w", conclave.ErrUnknown, t.Context().Err()),
		"lock_ownership_lost": &conclave.Error{Err: conclave.ErrLockOwnershipLost},
		"group_not_found":     &conclave.Error{Err: conclave.ErrGroupNotFound},
		"session_not_found":   &conclave.Error{Err: conclave.ErrSessionNotFound},
		"upgrade_required":    &conclave.Error{Err: conclave.ErrUpgradeRequired},
		"_OTHER":              errors.New("any other"),
	} {
		if got, refused := classify(err); got != want || refused {
			t.Errorf("%v: %s, %t; want %s", err, got, refused, want)
		}
	}
}

// Exporters refuse a whole batch of spans, also those of others, for one text that is not UTF-8.
// And a name that the group will refuse may have any length.
func TestSpan_InvalidNames(t *testing.T) {
	for _, name := range []string{"a\xffb", strings.Repeat("x", 1<<20), strings.Repeat("é", 1<<10) + "\xff"} {
		s, recorder := begin(t, sdk.AlwaysSample(), conclave.Operation{Kind: conclave.CallLock, Op: "lock", Name: name, Group: name})
		s.End(fmt.Errorf("conclave: lock: %w: %s", conclave.ErrInvalid, name))
		ended := recorder.Ended()[0]
		texts := []string{ended.Status().Description}
		for _, a := range ended.Attributes() {
			texts = append(texts, a.Value.AsString())
		}
		for _, text := range texts {
			if !utf8.ValidString(text) || len(text) > 4<<10 {
				t.Errorf("%.40q of %d bytes", text, len(text))
			}
		}
	}
}
