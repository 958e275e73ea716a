//go:build unix

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// documented are the blocks of commands of docs/OPERATIONS.md that make certificates, the first ones and those of a rotation.
func documented(t *testing.T) (first string, rotation []string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("SKIPPED: there is no openssl, so the commands for certificates were not tested")
	}
	for _, block := range shellBlocks(readDocument(t, "docs/OPERATIONS.md")) {
		switch {
		case strings.HasPrefix(block, "mkdir tls"):
			first = block
		case strings.Contains(block, "tls/"):
			rotation = append(rotation, block)
		}
	}
	return first, rotation
}

// carryOut runs commands in a directory, with variables.
func carryOut(t *testing.T, dir, commands string, variables ...string) {
	t.Helper()
	bash := exec.CommandContext(within(t), "bash", "-euc", commands)
	bash.Dir, bash.Env = dir, append(os.Environ(), variables...)
	if out, err := bash.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s\n%s", err, commands, out)
	}
}

// useCertificates has all commands of this test use the files of a directory.
func useCertificates(t *testing.T, dir string) {
	for name, file := range map[string]string{"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"} {
		t.Setenv(variable(name), filepath.Join(dir, file))
	}
	t.Setenv(variable("servername"), "orders")
}

// The certificates that docs/OPERATIONS.md makes are those of an agent and of its clients.
func TestDocuments_Certificates(t *testing.T) {
	first, _ := documented(t)
	dir := t.TempDir()
	carryOut(t, dir, first)
	useCertificates(t, filepath.Join(dir, "tls"))
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	addr, web := agentAddrs(t, p.line("msg=listening"))
	p.line("msg=open")
	var out, errs strings.Builder
	for _, asked := range [][]string{{"--addr", addr}, {"--http", web}} {
		out.Reset()
		if code := run(append([]string{"status", "-o", "json"}, asked...), nil, &out, os.Stderr); code != 0 {
			t.Error("status: exit code", code)
		}
		s := decoded[statusView](t, out.String())
		if s.Group != "conclave" || !s.TLS || s.NotAfter == nil || time.Until(*s.NotAfter) < 363*24*time.Hour || time.Until(*s.NotAfter) > 366*24*time.Hour {
			t.Errorf("%v: %s", asked, out.String())
		}
		notAfter := s.NotAfter.Format(time.RFC3339)
		out.Reset()
		if code := run(append([]string{"status"}, asked...), nil, &out, os.Stderr); code != 0 || !strings.Contains(out.String(), "tls:         yes, with a certificate that is valid until "+notAfter) {
			t.Errorf("%v: exit code %d\n%s", asked, code, out.String())
		}
	}
	out.Reset()
	code := run([]string{"status", "--addr", addr, "--servername", "invoices", "--timeout", "5s"}, nil, &out, &errs)
	want(t, result{out.String(), errs.String(), code}, exitUnavailable, "or set --servername")
	if !strings.Contains(out.String(), "or set --servername") {
		t.Error(out.String())
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line("msg=closed")
}

// An authority is replaced with the commands of docs/OPERATIONS.md. After each step a member is restarted, so that it
// connects to the others, and they to it, with the files of then.
func TestOperations_RotateAuthority(t *testing.T) {
	first, rotation := documented(t)
	if len(rotation) != 3 {
		t.Fatalf("%d steps, want 3: %q", len(rotation), rotation)
	}
	d := newDeployment(t)
	carryOut(t, d.dir, first+"cp -r tls former\n")
	useCertificates(t, filepath.Join(d.dir, "tls"))
	all := d.found()
	d.healthy(all[0], 3, 0)
	var variables []string
	for step, block := range rotation {
		variables = variables[:0]
		for i, name := range []string{"anna", "ben", "clara"} {
			variables = append(variables, fmt.Sprintf("%s=%d", name, all[i].cmd.Process.Pid))
		}
		carryOut(t, d.dir, block, variables...)
		for _, m := range all {
			m.line(`msg="certificates loaded"`)
		}
		other := all[(step+1)%3]
		d.any = other.addr
		must0(t, all[step].cmd.Process.Signal(syscall.SIGTERM))
		if code := all[step].wait(); code != 0 {
			t.Errorf("step %d: exit code %d of %s", step+1, code, all[step].name)
		}
		all[step] = d.start(all[step].name)
		d.opened(all[step])
		for _, m := range all {
			d.healthy(m, 3, 0)
		}
	}
	for _, m := range all {
		if text := m.printed(); strings.Contains(text, "tls: ") || strings.Contains(text, "certificates not loaded") {
			t.Errorf("%s has refused a certificate:\n%s", m.name, text)
		}
	}
	former := filepath.Join(d.dir, "former")
	command := []string{"status", "--addr", all[0].addr, "--timeout", "5s", "--cert", filepath.Join(former, "tls.crt"), "--key", filepath.Join(former, "tls.key")}
	var errs bytes.Buffer
	if code := run(command, nil, io.Discard, &errs); code != exitUnavailable || !strings.Contains(errs.String(), "tls: ") {
		t.Errorf("a certificate of the former authority: exit code %d\n%s", code, errs.String())
	}
	errs.Reset()
	command = []string{"status", "--addr", all[0].addr, "--timeout", "5s", "--ca", filepath.Join(former, "ca.crt")}
	if code := run(command, nil, io.Discard, &errs); code != exitUnavailable || !strings.Contains(errs.String(), "unknown authority") {
		t.Errorf("a client that trusts the former authority only: exit code %d\n%s", code, errs.String())
	}
}

// notAfter is when a line of the log states that what it names expires.
func notAfter(t *testing.T, line, attribute string) time.Time {
	t.Helper()
	_, text, _ := strings.Cut(line, " "+attribute+"=")
	text, _, _ = strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	return at
}

// At SIGHUP an agent logs until when its certificates are valid, and goes on.
func TestAgent_Hangup(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir, "orders")
	useCertificates(t, dir)
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	addr, web := agentAddrs(t, p.line("msg=listening"))
	began := notAfter(t, p.line(`msg="certificates loaded"`), "notAfter")
	if left := time.Until(began); left <= 0 || left > time.Hour {
		t.Errorf("the certificate is valid for %v, want an hour", left)
	}
	p.line("msg=open")

	file := filepath.Join(dir, "tls.crt")
	whole, err := os.ReadFile(file)
	must0(t, err)
	must0(t, os.WriteFile(file, whole[:len(whole)/2], 0o600))
	must0(t, p.cmd.Process.Signal(syscall.SIGHUP))
	failed := p.line(`msg="certificates not loaded: the last usable ones remain in use"`)
	if !strings.Contains(failed, "level=WARN") || !strings.Contains(failed, file) || !notAfter(t, failed, "notAfter").Equal(began) {
		t.Error(failed)
	}
	if status, text := get(t, "http://"+web+"/metrics", "", ""); status != 200 || !strings.Contains(text, fmt.Sprintf("%v", float64(began.Unix()))) {
		t.Errorf("%d, want the expiry %v in:\n%s", status, float64(began.Unix()), text)
	}
	if status, page := get(t, "http://"+web+"/console/", "", ""); status != 200 || !strings.Contains(page, "certificate expires in") {
		t.Errorf("%d, want the expiry in the console:\n%s", status, page)
	}

	certificate(t, dir, "orders")
	renewed, err := tls.LoadX509KeyPair(file, filepath.Join(dir, "tls.key"))
	must0(t, err)
	must0(t, p.cmd.Process.Signal(syscall.SIGHUP))
	loaded := p.line(`msg="certificates loaded"`)
	for _, attribute := range []string{"notAfter", "authoritiesNotAfter"} {
		if at := notAfter(t, loaded, attribute); !at.Equal(renewed.Leaf.NotAfter) {
			t.Errorf("%s=%v, want %v", attribute, at, renewed.Leaf.NotAfter)
		}
	}
	if code := run([]string{"status", "--addr", addr}, nil, io.Discard, os.Stderr); code != 0 {
		t.Error("status: exit code", code)
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 0 {
		t.Error("exit code", code)
	}
}

func TestAgent_HangupWithoutCertificates(t *testing.T) {
	p := startBy(t, []string{"nohup"}, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "none")
	addr, _ := agentAddrs(t, p.line("msg=listening"))
	must0(t, p.cmd.Process.Signal(syscall.SIGHUP)) // before it is open as well
	p.inAnyOrder("SIGHUP without effect", "msg=open")
	must0(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.line("SIGHUP without effect")
	if code := run([]string{"status", "--addr", addr}, nil, io.Discard, os.Stderr); code != 0 {
		t.Error("status: exit code", code)
	}
}

// renewal is the certificates of a process whose files a test changes.
type renewal struct {
	*certificates
	t    *testing.T
	dir  string
	said []error // nil: loaded
}

func newRenewal(t *testing.T) *renewal {
	r := &renewal{t: t, dir: t.TempDir()}
	certificate(t, r.dir, "orders")
	var err error
	r.certificates, err = newCertificates(&tlsFiles{cert: r.file("tls.crt"), key: r.file("tls.key"), ca: r.file("ca.crt")}, func(_ inUse, err error) {
		r.said = append(r.said, err)
	})
	must0(t, err)
	return r
}

func (r *renewal) file(name string) string { return filepath.Join(r.dir, name) }

// write replaces a file.
func (r *renewal) write(name string, content []byte) {
	r.t.Helper()
	must0(r.t, os.WriteFile(r.file(name), content, 0o600))
}

func (r *renewal) read(name string) []byte {
	r.t.Helper()
	content, err := os.ReadFile(r.file(name))
	must0(r.t, err)
	return content
}

// want checks what is in use, and whether a failure, or its end, is reported at two handshakes.
func (r *renewal) want(step string, certificate *x509.Certificate, authorities *x509.CertPool, report ...bool) {
	r.t.Helper()
	r.said = nil
	for range 2 {
		c, pool := r.current()
		if !c.Leaf.Equal(certificate) || !pool.Equal(authorities) {
			r.t.Errorf("%s: another certificate or other authorities are in use", step)
		}
	}
	var got []bool
	for _, err := range r.said {
		got = append(got, err == nil)
	}
	if !slices.Equal(got, report) {
		r.t.Errorf("%s: reported are %v", step, r.said)
	}
}

// While files are written the last usable ones remain in use, which is reported once.
func TestCertificates_HalfWritten(t *testing.T) {
	const failure, loaded = false, true
	r := newRenewal(t)
	first, trusted := r.current()
	formerAuthority := r.read("ca.crt")
	certificate(t, r.dir, "orders")
	cert, key, authority := r.read("tls.crt"), r.read("tls.key"), r.read("ca.crt")
	next, err := tls.X509KeyPair(cert, key)
	must0(t, err)
	both := x509.NewCertPool()
	both.AddCert(first.Leaf)
	both.AddCert(next.Leaf)

	bundle := append(bytes.Clone(formerAuthority), authority...)
	r.write("ca.crt", bundle[:len(bundle)-20])
	r.write("tls.key", key[:len(key)/2])
	r.write("tls.crt", cert)
	r.want("half of each", first.Leaf, trusted, failure)
	r.write("ca.crt", bundle)
	r.want("authorities are whole", first.Leaf, both)
	r.write("tls.key", key)
	r.want("the key is whole", next.Leaf, both, loaded)
	must0(t, os.Remove(r.file("tls.key")))
	r.want("no key", next.Leaf, both, failure)
	r.write("tls.key", key)
	r.want("the same key again", next.Leaf, both, loaded)
	chain := append(bytes.Clone(cert), formerAuthority[:len(formerAuthority)/2]...)
	r.write("tls.crt", chain)
	r.want("half of a chain", next.Leaf, both, failure)
	r.write("tls.crt", cert)
	r.write("ca.crt", nil)
	r.want("no authority", next.Leaf, both)
	r.write("ca.crt", authority)
	only := x509.NewCertPool()
	only.AddCert(next.Leaf)
	r.want("one authority", next.Leaf, only, loaded)
}

// A process that is dialed must have a certificate for that host.
func TestCertificates_Name(t *testing.T) {
	r := newRenewal(t)
	c, _ := r.current()
	for name, valid := range map[string]bool{"orders": true, "invoices": false, "127.0.0.1": false, "": false} {
		if err := r.verify(tls.ConnectionState{ServerName: name, PeerCertificates: []*x509.Certificate{c.Leaf}}); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
	other := newRenewal(t)
	foreign, _ := other.current()
	err := r.verify(tls.ConnectionState{ServerName: "orders", PeerCertificates: []*x509.Certificate{foreign.Leaf}})
	if unknown := new(x509.UnknownAuthorityError); !errors.As(err, unknown) {
		t.Errorf("of a foreign authority: %v", err)
	}
}

// METRICS lists what only an agent measures, with its help text and labels.
func TestDocuments_AgentMetrics(t *testing.T) {
	metrics := prometheus.NewRegistry()
	newRenewal(t).register(metrics)
	families, err := metrics.Gather()
	must0(t, err)
	if len(families) == 0 {
		t.Error("no metric")
	}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		row := fmt.Sprintf("| `%s` | gauge | %s | %s |\n", f.GetName(), strings.Join(labels, ", "), f.GetHelp())
		if !strings.Contains(readDocument(t, "docs/METRICS.md"), row) {
			t.Errorf("METRICS lacks %s", row)
		}
	}
}
