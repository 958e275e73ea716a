package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"

	"github.com/conclave-go/conclave/internal/wire"
)

var (
	// ErrClosed: the transport is closed.
	ErrClosed = errors.New("transport: closed")
	// ErrPlaintext: the address is not a loopback address, and neither TLS nor
	// Insecure is set.
	ErrPlaintext = errors.New("plaintext is allowed on loopback addresses only: set TLS, or Insecure if the network itself is trusted")
	// ErrUnknownPeer: the member is not a peer (see SetPeer).
	ErrUnknownPeer = errors.New("transport: the member is not a peer")
	// ErrNotConnected: no connection to the member has been attempted yet.
	ErrNotConnected = errors.New("transport: not connected yet")
	// ErrNotJoined: this member belongs to no cluster yet.
	ErrNotJoined = errors.New("transport: this member belongs to no cluster yet")
	// ErrNotConclave: the program at the other end is not a conclave member.
	ErrNotConclave = errors.New("the other end does not use conclave's protocol")
	// ErrTLSMismatch: one end uses TLS and the other plaintext.
	ErrTLSMismatch = errors.New("one end uses TLS and the other plaintext")
	// ErrTooLarge: a frame, packet or pair exceeds its limit.
	ErrTooLarge = errors.New("transport: size limit exceeded")
	// ErrBadFrame: a frame is damaged or out of order.
	ErrBadFrame = errors.New("transport: bad frame")
	// ErrQueueFull: a client or member does not read what is sent to it.
	ErrQueueFull = errors.New("transport: limit exceeded: the other end does not read what is queued for it")
	// ErrSilent: not even a keep-alive arrived in time.
	ErrSilent = errors.New("transport: nothing arrived for longer than the timeout of keep-alives")
	// ErrSnapshotRefused: the receiver did not install the snapshot.
	ErrSnapshotRefused = errors.New("transport: the receiver did not install the snapshot")
)

// ConnectError reports that no connection to a peer was established, for
// another reason than a refusal (see RefusedError).
type ConnectError struct {
	Member    uint64 // zero: unknown
	Addr      string
	Host      string // the name in Config.Join that was resolved to Addr; "": none
	Inbound   bool   // the peer connected to this member
	Client    bool   // a client connected to a member
	Handshake bool   // the connection was established, its handshake failed
	Answered  bool   // a member has answered at the address before
	Err       error
}

func (e *ConnectError) Error() string {
	step := "connect to "
	if e.Handshake {
		step = "handshake with "
	}
	addr := e.Addr
	if e.Host != "" {
		addr = fmt.Sprintf("%s, an address of %s", addr, e.Host)
	}
	return step + peerAt(e.Member, addr) + ": " + e.cause() + e.advice()
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// cause is the text of Err, without the address that Error states already.
func (e *ConnectError) cause() string {
	op, ok := e.Err.(*net.OpError)
	if !ok || op.Op != "dial" || op.Addr != nil && op.Addr.String() != e.Addr {
		return e.Err.Error()
	}
	if call, ok := op.Err.(*os.SyscallError); ok {
		return call.Err.Error()
	}
	return op.Err.Error()
}

// advice returns what to do about the error, with a leading colon, or "".
func (e *ConnectError) advice() string {
	source := "Config.Advertise of that member"
	if e.Member == 0 {
		source = "Config.Join here, or Config.Advertise there"
	}
	if e.Client {
		source = "the addresses of members that this client has, or Config.Advertise of that member"
	}
	var unresolved *net.DNSError
	switch text := e.handshakeAdvice(); {
	case text != "":
		return ": " + text
	case e.Inbound, errors.Is(e.Err, ErrPlaintext), errors.Is(e.Err, ErrClosed), errors.Is(e.Err, context.Canceled):
		return ""
	case errors.As(e.Err, &unresolved):
		return ": check the host in " + source + ", and the name service"
	case errors.Is(e.Err, ErrNotConclave):
		return ": another program listens there, check the port in " + source
	case !e.Handshake:
		return ": check that the member runs, and the host and port in " + source
	case isTimeout(e.Err) && e.Answered:
		return ": the process there accepts but does not answer: paused or overloaded"
	case isTimeout(e.Err):
		return ": no hello arrived in time, check the port in " + source
	}
	return ": see the log of the member there"
}

// handshakeAdvice is the part of advice that applies to either direction. A member does not
// know whether a process whose handshake failed is a member or a client.
func (e *ConnectError) handshakeAdvice() string {
	err, own, other := e.Err, "Config.TLS", "member"
	if e.Client {
		own = "the client's TLS"
	}
	if e.Inbound {
		other = "process"
	}
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.Is(err, ErrTLSMismatch):
		return "set TLS on every member and client, or on none"
	case errors.As(err, &authority):
		if e.Inbound {
			return "set RootCAs, or ClientCAs, in Config.TLS to the authority that issues the certificates of members and clients"
		}
		return "set RootCAs in " + own + " to the authority that issues the members' certificates"
	case errors.As(err, &host):
		return "issue that member a certificate for the host in its Config.Advertise, or set ServerName in " + own
	case errors.As(err, &invalid):
		if invalid.Reason == x509.Expired {
			return "replace that " + other + "'s certificate, if the clock of this machine is right"
		}
		return "replace that " + other + "'s certificate"
	case isAlert(err):
		return "the other " + other + " rejected the TLS handshake, see its log for the reason"
	}
	return ""
}

// peerAt names a peer by its address, and by its ID if that is known.
func peerAt(member uint64, addr string) string {
	if member == 0 {
		return addr
	}
	return fmt.Sprintf("member %v at %s", wire.MemberID(member), addr)
}

// isAlert reports whether err is a TLS alert that the peer sent.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// isTimeout reports whether a deadline is the cause of err.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// isClosed reports whether this side closed the connection, or the peer did so
// between two frames.
func isClosed(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe)
}

// closedByPeer explains io.EOF, in which no reader recognizes a connection that the other end
// has closed.
func closedByPeer(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("closed by the other end (%w)", err)
	}
	return err
}

// Errors of Windows, which its package syscall does not compare with those of the same name.
const (
	wsaConnReset   = syscall.Errno(10054)
	wsaConnRefused = syscall.Errno(10061)
)

// isEndedByHost reports whether the host at the other end has ended a connection: not this side, by a close or a timeout.
func isEndedByHost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		runtime.GOOS == "windows" && errors.Is(err, wsaConnReset)
}

// isConnectionRefused reports whether the host that was dialed refuses connections to the port.
func isConnectionRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || runtime.GOOS == "windows" && errors.Is(err, wsaConnRefused)
}

// isBroken reports whether the connection, rather than what arrived on it, is
// the cause of err.
func isBroken(err error) bool {
	return isClosed(err) || isTimeout(err) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
