package conclave_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestDial_Locks(t *testing.T) {
	n := grouptest.Alone(t)
	c := grouptest.Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, n)
	a, b := c.FencedLock("x"), n.FencedLock("x")
	first := grouptest.MustLock(t, a)
	info, err := b.Info(t.Context())
	if err != nil || !info.Held || info.Fence != first || info.Node != c.ID() {
		t.Fatalf("%+v %v; want client %v", info, err, c.ID())
	}
	info, err = a.Info(t.Context())
	if err != nil || !info.Held || info.Fence != first || info.Node != c.ID() {
		t.Fatalf("%+v %v; want client %v", info, err, c.ID())
	}
	grouptest.MustUnlock(t, a)
	if second := grouptest.MustLock(t, b); second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
	grouptest.MustUnlock(t, b)
}

// The errors of a closed client do not call it a node.
func TestClient_ErrorsOnceClosed(t *testing.T) {
	n := grouptest.Alone(t)
	c := grouptest.Dial(t, &conclave.ClientConfig{}, n)
	s, err := c.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, locked := c.FencedLock("x").Lock(t.Context())
	_, got := c.KV().Get(t.Context(), "x")
	_, asked := c.Status(t.Context())
	for what, err := range map[string]error{"lock": locked, "get": got, "status": asked, "session": s.Err(), "client": c.Err()} {
		if !errors.Is(err, conclave.ErrClosed) || !strings.HasSuffix(err.Error(), ": client is closed") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A Dial whose first attempt has no result yet names the address.
func TestDial_SilentAddress(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = conclave.Dial(ctx, &conclave.ClientConfig{Addresses: []string{l.Addr().String()}})
	if !errors.Is(err, conclave.ErrUnavailable) || !strings.Contains(err.Error(), l.Addr().String()+" has not answered yet") {
		t.Errorf("%v", err)
	}
}

// What the program does to its slice of addresses after Dial has no effect: the client connects again at those that were checked.
func TestDial_AddressesCopied(t *testing.T) {
	n := grouptest.Alone(t)
	var (
		mu     sync.Mutex
		dialed []string
		conn   net.Conn
		fails  bool // the next dial
	)
	cfg := &conclave.ClientConfig{Dial: func(ctx context.Context, addr string) (c net.Conn, err error) {
		mu.Lock()
		defer mu.Unlock()
		if dialed = append(dialed, addr); fails {
			fails = false
			return nil, errors.New("not at the first address")
		}
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", n.Addr())
		return conn, err
	}}
	c := grouptest.Dial(t, cfg, n)
	cfg.Addresses[0] = "192.0.2.1:7000" // plaintext beyond loopback, which Dial refuses
	mu.Lock()
	fails = true
	_ = conn.Close()
	mu.Unlock()
	if _, err := c.KV().Put(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, addr := range dialed {
		if addr != n.Addr() {
			t.Fatalf("dialed %q, want %s", dialed, n.Addr())
		}
	}
}

// A client, which is never dialed, needs no authorities but those by which it verifies members, as where these change.
func TestDial_VerifiesMembersItself(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := &tls.Config{
		InsecureSkipVerify:   true,
		VerifyConnection:     func(tls.ConnectionState) error { return nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil },
	}
	dial := func() error {
		_, err := conclave.Dial(done, &conclave.ClientConfig{Addresses: []string{"127.0.0.1:1"}, TLS: cfg})
		return err
	}
	if err := dial(); errors.Is(err, conclave.ErrInvalid) {
		t.Error(err)
	}
	cfg.VerifyConnection = nil
	grouptest.WantError(t, dial(), conclave.ErrInvalid)
}
