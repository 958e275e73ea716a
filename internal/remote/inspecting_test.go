package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// Whatever does not answer, the name service or the processes behind a name, an address has the documented time, and less
// if ctx ends before. The error states what has not answered; that ctx ended says nothing about the address.
func TestInspect_Silent(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		name          string
		lookup, limit time.Duration
		takes         time.Duration
		want          string
		ended         bool // the error is that of ctx
	}{
		{"name service", never, never, inspectTime, "no answer of the name service within 2.5s", false},
		{"name service, less time", never, time.Second, 900 * time.Millisecond, "no answer of the name service within 900ms", false},
		{"members", 0, never, inspectTime, "no answer within 2.5s: the process there is paused or overloaded", false},
		{"members, slow name service", 2200 * time.Millisecond, never, inspectTime, "no answer within 2.5s, of which the name service has taken 2.2s", false},
		{"members, name service in time", time.Second, never, inspectTime, "no answer within 2.5s: the process there is paused or overloaded", false},
		{"members, less time", 0, time.Second, 900 * time.Millisecond, "no answer within 900ms: the process there is paused", false},
		{"members, hardly any time", 0, 400 * time.Millisecond, 400 * time.Millisecond, "deadline exceeded", true},
		{"name service, hardly any time", never, 400 * time.Millisecond, 400 * time.Millisecond, "deadline exceeded", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				began := time.Now()
				found := silent(t, c.lookup).address(ctx, "members:7000")
				if d := time.Since(began); d != c.takes {
					t.Errorf("it takes %v, want %v", d, c.takes)
				}
				if want := 2; c.lookup < never && len(found) != want {
					t.Errorf("%+v, want %d addresses", found, want)
				}
				for _, f := range found {
					var timeout interface{ Timeout() bool }
					text := f.Err.Error()
					switch {
					case !strings.Contains(text, c.want), strings.Count(text, "no answer") > 1:
						t.Errorf("%v", f.Err)
					case !errors.As(f.Err, &timeout) || !timeout.Timeout():
						t.Errorf("it is not in time, and the error is %v", f.Err)
					case c.ended != errors.Is(f.Err, context.DeadlineExceeded), c.ended && strings.Contains(text, "check"):
						t.Errorf("of ctx: %v", f.Err)
					}
				}
			})
		})
	}
}

// A call that its caller cancels reports that, and nothing about the addresses.
func TestInspect_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("interrupted")) })
		for _, f := range silent(t, 0).address(ctx, "members:7000") {
			if text := f.Err.Error(); !errors.Is(f.Err, context.Canceled) || !strings.Contains(text, "interrupted") || strings.Contains(text, "check") {
				t.Errorf("%v", f.Err)
			}
		}
	})
}

// What one address answers is bounded in bytes, of all its answers together.
func TestInspect_LargeAnswer(t *testing.T) {
	part := &wire.Answer{Part: make([]byte, 64<<10)}
	i := &inspection{kinds: []string{"status", "health"}}
	received := 0
	_, err := i.read(func(m proto.Message) error {
		received += len(part.GetPart())
		part.Id = uint64(received>>16) % 2
		m.(*wire.MemberFrame).Body = &wire.MemberFrame_Answer{Answer: part}
		if received > 2*maxInspected {
			return io.EOF
		}
		return nil
	})
	if !errors.Is(err, errInspectedTooLarge) || received > maxInspected+len(part.GetPart()) {
		t.Errorf("%v after %d bytes", err, received)
	}
}

// silent inspects through a name service that answers after a time, with two addresses where connections are accepted and
// never served.
func silent(t *testing.T, lookup time.Duration) *inspection {
	dialer, err := transport.NewDialer(transport.DialerConfig{
		Group: "conclave", Insecure: true,
		Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			select {
			case <-time.After(lookup):
				return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}, nil
			case <-ctx.Done():
				return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
			}
		},
		Dial: func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			t.Cleanup(func() { _ = there.Close() })
			return here, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialer.Close() })
	return &inspection{dialer: dialer, kinds: []string{"status"}, slots: make(chan struct{}, maxInspecting)}
}
