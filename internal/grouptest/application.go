package grouptest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// Application has every function that an application can pass to a node or a client. From
// Block on they block until Release.
type Application struct {
	mu      sync.Mutex
	known   map[string]bool        // functions that a node or client was given
	blocked map[string]int         // guarded by mu; calls that block, or did
	blocks  func(name string) bool // guarded by mu
	fails   func(name string)      // guarded by mu
	release chan struct{}
}

// NewApplication returns an application none of whose functions blocks.
func NewApplication() *Application {
	return &Application{known: make(map[string]bool), blocked: make(map[string]int), release: make(chan struct{})}
}

// Block has the functions block whose names are chosen.
func (a *Application) Block(chosen func(name string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks = chosen
}

// Fail has each function call fail first, with its name.
func (a *Application) Fail(fail func(name string)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = fail
}

// Release has all functions return, those that block and later ones.
func (a *Application) Release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.blocks, a.fails = nil, nil; !a.released() {
		close(a.release)
	}
}

func (a *Application) released() bool {
	select {
	case <-a.release:
		return true
	default:
		return false
	}
}

// Blocked returns how many calls have blocked of functions whose names begin so.
func (a *Application) Blocked(prefix string) (calls int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range a.blocked {
		if strings.HasPrefix(name, prefix) {
			calls += n
		}
	}
	return calls
}

// call is called by each function.
func (a *Application) call(name string) {
	a.mu.Lock()
	a.known[name] = true
	blocks := a.blocks != nil && a.blocks(name) && !a.released()
	if blocks {
		a.blocked[name]++
	}
	fails := a.fails
	a.mu.Unlock()
	if blocks {
		<-a.release
	}
	if fails != nil {
		fails(name)
	}
}

func (a *Application) knows(names ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		a.known[name] = true
	}
}

// Missing returns those of the names that no node or client was given.
func (a *Application) Missing(names []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return a.known[name] })
}

// Configure completes a configuration. That of TLS has certificates and authorities.
func (a *Application) Configure(c *conclave.Config) {
	c.Logger, c.Events, c.Tracer = a.logger(), a.events(), appTracer{a}
	c.TLS, c.Dial, c.VerifyPeer = a.tls(c.TLS), a.dial(c.Dial), a.verifyPeer()
}

// ConfigureClient is Configure for a client.
func (a *Application) ConfigureClient(c *conclave.ClientConfig) {
	c.Logger, c.Events, c.Tracer = a.logger(), a.events(), appTracer{a}
	c.TLS, c.Dial, c.VerifyPeer = a.tls(c.TLS), a.dial(c.Dial), a.verifyPeer()
}

func (a *Application) logger() *slog.Logger {
	a.knows(methods[slog.Handler]("Logger")...)
	return slog.New(appHandler{a, slog.NewTextHandler(io.Discard, nil)})
}

func (a *Application) verifyPeer() func(conclave.Peer) error {
	a.knows("VerifyPeer")
	return func(conclave.Peer) error { a.call("VerifyPeer"); return nil }
}

func (a *Application) dial(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	a.knows("Dial")
	return func(ctx context.Context, addr string) (net.Conn, error) {
		a.call("Dial")
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return appConn{a, c}, nil
	}
}

// Listen wraps the listener of a node.
func (a *Application) Listen(l net.Listener) net.Listener {
	a.knows(append(methods[net.Listener]("Listener"), methods[net.Conn]("Conn")...)...)
	return appListener{a, l}
}

// events has a function in each field.
func (a *Application) events() *conclave.Events {
	e := new(conclave.Events)
	a.fill(reflect.ValueOf(e).Elem(), "Events")
	return e
}

// fill sets the fields of a struct that are functions and nil.
func (a *Application) fill(s reflect.Value, prefix string) {
	for i := range s.NumField() {
		name, f := prefix+"."+s.Type().Field(i).Name, s.Field(i)
		if f.Kind() != reflect.Func || !f.CanSet() {
			continue
		}
		a.knows(name)
		before := reflect.New(f.Type()).Elem()
		before.Set(f)
		f.Set(reflect.MakeFunc(f.Type(), func(in []reflect.Value) []reflect.Value {
			a.call(name)
			if !before.IsNil() {
				return before.Call(in)
			}
			out := make([]reflect.Value, f.Type().NumOut())
			for k := range out {
				out[k] = reflect.Zero(f.Type().Out(k))
			}
			return out
		}))
	}
}

// tls has each callback and each object that the package has an interface for.
func (a *Application) tls(c *tls.Config) *tls.Config {
	c = c.Clone()
	certificate := &c.Certificates[0]
	c.Time = time.Now
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	a.fill(reflect.ValueOf(c).Elem(), "TLS")
	a.knows("TLS.Rand", "TLS.KeyLogWriter", "TLS.ClientSessionCache")
	c.Rand, c.KeyLogWriter = appRandom{a}, appKeyLog{a}
	c.ClientSessionCache = appCache{a}
	return c
}

type appHandler struct {
	of *Application
	to slog.Handler
}

func (h appHandler) Enabled(ctx context.Context, l slog.Level) bool {
	h.of.call("Logger.Enabled")
	return h.to.Enabled(ctx, l)
}

func (h appHandler) Handle(ctx context.Context, r slog.Record) error {
	h.of.call("Logger.Handle")
	return h.to.Handle(ctx, r)
}

func (h appHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.of.call("Logger.WithAttrs")
	return appHandler{h.of, h.to.WithAttrs(attrs)}
}

func (h appHandler) WithGroup(name string) slog.Handler {
	h.of.call("Logger.WithGroup")
	return appHandler{h.of, h.to.WithGroup(name)}
}

// traced is how the names of locks begin whose calls have a span. A Tracer that blocks delays
// the calls that it traces.
const traced = "traced by "

type appTracer struct{ of *Application }

func (t appTracer) Begin(_ context.Context, op conclave.Operation) conclave.Span {
	t.of.knows(methods[conclave.Tracer]("Tracer")...)
	t.of.knows(methods[conclave.Span]("Span")...)
	name, ok := strings.CutPrefix(op.Name, traced)
	if !ok {
		return nil
	}
	s := appSpan{t.of, name}
	s.call("Tracer.Begin")
	return s
}

// appSpan blocks in the method that the lock's name contains.
type appSpan struct {
	of   *Application
	name string
}

func (s appSpan) call(method string) {
	if method == s.name {
		s.of.call(method)
	}
}

func (s appSpan) Carrier() []byte          { s.call("Span.Carrier"); return []byte("carrier") }
func (s appSpan) Event(conclave.SpanEvent) { s.call("Span.Event") }
func (s appSpan) End(error)                { s.call("Span.End") }

type appListener struct {
	of *Application
	to net.Listener
}

func (l appListener) Addr() net.Addr { l.of.call("Listener.Addr"); return l.to.Addr() }
func (l appListener) Close() error   { l.of.call("Listener.Close"); return l.to.Close() }

func (l appListener) Accept() (net.Conn, error) {
	l.of.call("Listener.Accept")
	c, err := l.to.Accept()
	if err != nil {
		return nil, err
	}
	return appConn{l.of, c}, nil
}

// appConn calls itself by the names of its methods.
type appConn struct {
	of *Application
	to net.Conn
}

func (c appConn) Read(b []byte) (int, error)  { c.of.call("Conn.Read"); return c.to.Read(b) }
func (c appConn) Write(b []byte) (int, error) { c.of.call("Conn.Write"); return c.to.Write(b) }
func (c appConn) Close() error                { c.of.call("Conn.Close"); return c.to.Close() }
func (c appConn) LocalAddr() net.Addr         { c.of.call("Conn.LocalAddr"); return c.to.LocalAddr() }
func (c appConn) RemoteAddr() net.Addr        { c.of.call("Conn.RemoteAddr"); return c.to.RemoteAddr() }

func (c appConn) SetDeadline(t time.Time) error {
	c.of.call("Conn.SetDeadline")
	return c.to.SetDeadline(t)
}

func (c appConn) SetReadDeadline(t time.Time) error {
	c.of.call("Conn.SetReadDeadline")
	return c.to.SetReadDeadline(t)
}

func (c appConn) SetWriteDeadline(t time.Time) error {
	c.of.call("Conn.SetWriteDeadline")
	return c.to.SetWriteDeadline(t)
}

type appRandom struct{ of *Application }

func (r appRandom) Read(b []byte) (int, error) { r.of.call("TLS.Rand"); return rand.Read(b) }

type appKeyLog struct{ of *Application }

func (k appKeyLog) Write(b []byte) (int, error) { k.of.call("TLS.KeyLogWriter"); return len(b), nil }

type appCache struct{ of *Application }

func (c appCache) Get(string) (*tls.ClientSessionState, bool) {
	c.of.call("TLS.ClientSessionCache")
	return nil, false
}

func (c appCache) Put(string, *tls.ClientSessionState) { c.of.call("TLS.ClientSessionCache") }

// methods returns the names of an interface's methods.
func methods[I any](prefix string) (names []string) {
	t := reflect.TypeFor[I]()
	for i := range t.NumMethod() {
		names = append(names, prefix+"."+t.Method(i).Name)
	}
	return names
}

// Functions returns the names of all functions that an application passes in a configuration,
// and the fields of which it does not know whether they have any.
func Functions(config reflect.Type) (names, unknown []string) {
	for i := range config.NumField() {
		f := config.Field(i)
		switch {
		case !f.IsExported():
		case f.Type.Kind() == reflect.Func:
			names = append(names, f.Name)
		case f.Type == reflect.TypeFor[*slog.Logger]():
			names = append(names, methods[slog.Handler](f.Name)...)
		case f.Type == reflect.TypeFor[conclave.Tracer]():
			names = append(append(names, methods[conclave.Tracer](f.Name)...), methods[conclave.Span]("Span")...)
		case f.Type == reflect.TypeFor[net.Listener]():
			names = append(append(names, methods[net.Listener](f.Name)...), methods[net.Conn]("Conn")...)
		case f.Type == reflect.TypeFor[*conclave.Events](), f.Type == reflect.TypeFor[*tls.Config]():
			names = append(names, fieldsOf(f.Type.Elem(), f.Name)...)
		case !plain(f.Type):
			unknown = append(unknown, f.Name)
		}
	}
	return names, unknown
}

// fieldsOf returns the fields of a struct that are functions or interfaces.
func fieldsOf(s reflect.Type, prefix string) (names []string) {
	for i := range s.NumField() {
		if f := s.Field(i); f.IsExported() && (f.Type.Kind() == reflect.Func || f.Type.Kind() == reflect.Interface) {
			names = append(names, prefix+"."+f.Name)
		}
	}
	return names
}

// plain reports whether a type has no functions.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Func, reflect.Interface, reflect.Chan, reflect.Pointer, reflect.UnsafePointer:
		return false
	case reflect.Slice, reflect.Array:
		return plain(t.Elem())
	case reflect.Map:
		return plain(t.Key()) && plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !plain(t.Field(i).Type) {
				return false
			}
		}
	}
	return true
}
