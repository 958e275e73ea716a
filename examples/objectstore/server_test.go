//go:build unix

package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	patience = time.Minute // for a step of the server
	bucket   = "invoices"
	secret   = "secret-of-the-test"
)

// gateway is the server's program, as the go command names it.
const gateway = "github.com/versity/versitygw/cmd/versitygw"

var binary string // the compiled server

func TestMain(m *testing.M) {
	status, err := build(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// build compiles the server, from the version in go.mod, for all tests.
func build(run func() int) (status int, err error) {
	dir, err := os.MkdirTemp("", "conclave-s3-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary = filepath.Join(dir, "versitygw")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, gateway).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build the S3 server: %w\n%s", err, out)
	}
	return run(), nil
}

// store starts a server of its own for the test, on a Unix socket in a temporary directory, and returns a client.
// The bucket exists.
func store(t *testing.T, options ...func(*s3.Options)) *s3.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "s3") // a path short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	ended := serve(t, socket, data)
	connections := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(connections.CloseIdleConnections)
	awaitReady(t, socket, ended)
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String("http://s3.test"), UsePathStyle: true, Region: "us-east-1",
		HTTPClient: &http.Client{Transport: connections},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: secret}, nil
		}),
	}, options...)
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		t.Fatal(err)
	}
	return client
}

// serve starts the server, which the end of the test stops, and returns a channel that closes when it ends.
func serve(t *testing.T, socket, data string) <-chan struct{} {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(binary, "--port", socket, "--access", "test", "--secret", secret, "--quiet", "posix", data)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the tests show what failed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
		watchdog := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer watchdog.Stop()
		<-ended
		if t.Failed() {
			t.Logf("the server printed:\n%s", log.String())
		}
	})
	return ended
}

// awaitReady returns when the socket takes connections. The server reports its start before that, so the test tries
// again until it does.
func awaitReady(t *testing.T, socket string, ended <-chan struct{}) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	timeout := time.After(patience)
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close() // it has served its purpose
			return
		}
		select {
		case <-again.C:
		case <-ended:
			t.Fatal("the server ended; it needs a file system with extended attributes")
		case <-timeout:
			t.Fatalf("the server takes no connections: %v", err)
		}
	}
}
