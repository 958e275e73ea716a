//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// manifest is a Kubernetes manifest, or a part of one.
type manifest struct{ value any }

// at returns what is at a path, such as spec.ports.0.port; an empty part if there is nothing.
func (m manifest) at(path string) manifest {
	for key := range strings.SplitSeq(path, ".") {
		switch v := m.value.(type) {
		case map[string]any:
			m.value = v[key]
		case []any:
			m.value = nil
			if i, err := strconv.Atoi(key); err == nil && i < len(v) {
				m.value = v[i]
			}
		default:
			m.value = nil
		}
	}
	return m
}

func (m manifest) text(path string) string {
	if v := m.at(path).value; v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// list returns the parts of a list.
func (m manifest) list(path string) (parts []manifest) {
	list, _ := m.at(path).value.([]any)
	for _, part := range list {
		parts = append(parts, manifest{part})
	}
	return parts
}

// manifests returns those of a file by their kind. The YAML library refuses a key that stands twice.
func manifests(t *testing.T, path string) map[string]manifest {
	t.Helper()
	file, err := os.Open(path)
	must0(t, err)
	defer file.Close()
	byKind := make(map[string]manifest)
	for in := yaml.NewDecoder(file); ; {
		var m manifest
		if err := in.Decode(&m.value); errors.Is(err, io.EOF) {
			return byKind
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		byKind[m.text("kind")] = m
		if m.text("apiVersion") == "" || m.text("metadata.name") == "" {
			t.Errorf("%s: a manifest lacks apiVersion or metadata.name", path)
		}
	}
}

const container = "spec.template.spec.containers.0"

// The manifests are well-formed, and name only what exists: commands, flags and variables of conclave, and their own labels, ports,
// volumes and Service.
func TestDocuments_KubernetesManifests(t *testing.T) {
	files, err := filepath.Glob("../../docs/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			byKind := manifests(t, path)
			workload, isDeployment := byKind["Deployment"]
			if !isDeployment {
				workload = byKind["StatefulSet"]
			}
			checkWorkload(t, path, workload, byKind["Service"], byKind["PodDisruptionBudget"])
			startWorkload(t, path, workload)
		})
	}
}

func checkWorkload(t *testing.T, path string, workload, service, budget manifest) {
	t.Helper()
	want := func(what, got, want string) {
		t.Helper()
		if got != want || got == "" {
			t.Errorf("%s: %s: got %q, want %q", path, what, got, want)
		}
	}
	app := workload.text("spec.template.metadata.labels.app")
	want("selector", workload.text("spec.selector.matchLabels.app"), app)
	want("selector of the Service", service.text("spec.selector.app"), app)
	want("selector of the budget", budget.text("spec.selector.matchLabels.app"), app)
	want("the Service", service.text("spec.clusterIP"), "None")
	want("the Service", service.text("spec.publishNotReadyAddresses"), "true")
	if workload.text("kind") == "StatefulSet" {
		want("serviceName", workload.text("spec.serviceName"), service.text("metadata.name"))
	}
	pod := workload.at(container)
	args, ports, volumes, known := map[string]string{}, map[string]string{}, map[string]bool{}, variables(commands())
	for _, arg := range pod.list("args") {
		name, value, _ := strings.Cut(strings.TrimPrefix(fmt.Sprint(arg.value), "--"), "=")
		args[name] = value
	}
	for _, v := range pod.list("env") {
		if name := v.text("name"); !known[name] && name != "POD_NAME" && name != "POD_IP" {
			t.Errorf("%s: no flag has the variable %s", path, name)
		}
	}
	for _, p := range pod.list("ports") {
		ports[p.text("name")] = p.text("containerPort")
	}
	for _, v := range append(workload.list("spec.template.spec.volumes"), workload.list("spec.volumeClaimTemplates")...) {
		volumes[v.text("name")+v.text("metadata.name")] = true
	}
	for _, m := range pod.list("volumeMounts") {
		if !volumes[m.text("name")] {
			t.Errorf("%s: no volume %q", path, m.text("name"))
		}
	}
	want("--join", args["join"], service.text("metadata.name")+":"+service.text("spec.ports.0.port"))
	want("--bind", args["bind"], ":"+ports["group"])
	want("--http", args["http"], ":"+ports["http"])
	want("--expect", args["expect"], workload.text("spec.replicas"))
	for probe, path := range map[string]string{"readinessProbe": "/readyz", "livenessProbe": "/livez"} {
		want(probe, pod.text(probe+".httpGet.port"), "http")
		want(probe, pod.text(probe+".httpGet.path"), path)
	}
	if _, leaves := args["leave"]; leaves != (args["dir"] == "") {
		t.Errorf("%s: members with a directory must not leave, and those without must", path)
	}
}

// startWorkload runs the container on this machine, with the variables of the image: it waits for the other pods, answers probes and
// ends gracefully.
func startWorkload(t *testing.T, path string, workload manifest) {
	t.Helper()
	dir := t.TempDir()
	certificate(t, dir, workload.text("spec.template.metadata.labels.app"))
	local := strings.NewReplacer("$(POD_NAME)", "pod-0", "$(POD_IP)", "127.0.0.1", "/tls/", dir+"/", "/data/", dir+"/data/")
	for _, v := range regexp.MustCompile(`(CONCLAVE_\w+)=(\S+)`).FindAllStringSubmatch(readDocument(t, "Dockerfile"), -1) {
		t.Setenv(v[1], v[2])
	}
	pod := workload.at(container)
	for _, v := range pod.list("env") {
		t.Setenv(v.text("name"), local.Replace(v.text("value")))
	}
	var args []string
	for _, arg := range pod.list("args") {
		args = append(args, local.Replace(fmt.Sprint(arg.value)))
	}
	// The machine's ports may be taken, and all its addresses are not this test's.
	p := start(t, append(args, "--bind=127.0.0.1:0", "--http=127.0.0.1:0")...)
	_, web := agentAddrs(t, p.line("msg=listening"))
	for probe, want := range map[string]int{"readinessProbe": 503, "livenessProbe": 200} {
		if status, text := get(t, "http://"+web+pod.text(probe+".httpGet.path"), "", ""); status != want {
			t.Errorf("%s: %s answers %d, want %d: %s", path, probe, status, want, text)
		}
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 0 {
		t.Errorf("%s: exit code %d, want 0:\n%s", path, code, p.printed())
	}
}

// certificate writes what a Secret of cert-manager has: a certificate with a name, its key, and the authority, which is the certificate
// itself here.
func certificate(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must0(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must0(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must0(t, err)
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "ca.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		must0(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
}
