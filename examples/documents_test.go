package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var flagName = regexp.MustCompile(`(?m)^\s+-([a-z-]+)`)

// memberFlags returns the flags that "member -help" lists, or those of a command.
func memberFlags(t *testing.T, command ...string) map[string]bool {
	t.Helper()
	out, err := exec.Command(filepath.Join(programs, "member"), append(command, "-help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("member %v -help: %v\n%s", command, err, out)
	}
	found := make(map[string]bool)
	for _, m := range flagName.FindAllStringSubmatch(string(out), -1) {
		found[m[1]] = true
	}
	return found
}

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each command that a page or the systemd unit shows has only flags that the program has.
func TestDocuments_MemberCommands(t *testing.T) {
	t.Parallel()
	shown := regexp.MustCompile(`(?m)^(?:\s*//\s*go run \./examples/member|ExecStart=\S+/member|member|go run \./examples/member) (.*)$`)
	word := regexp.MustCompile(`(?:^| )-([a-z-]+)`)
	flags := map[string]map[string]bool{}
	for _, name := range []string{"docs/OPERATIONS.md", "README.md", "docs/systemd/member.service", "examples/member/main.go"} {
		text := strings.ReplaceAll(readDocument(t, name), "\\\n", "")
		if strings.HasSuffix(name, ".md") {
			text = shellBlocks(text)
		}
		commands := shown.FindAllStringSubmatch(text, -1)
		if len(commands) == 0 {
			t.Errorf("%s: no command found", name)
		}
		for _, c := range commands {
			line, _, _ := strings.Cut(c[1], " $(") // a command in the command has flags of its own
			command, _, _ := strings.Cut(line, " ")
			if strings.HasPrefix(command, "-") {
				command = ""
			}
			if flags[command] == nil {
				flags[command] = memberFlags(t, strings.Fields(command)...)
			}
			for _, f := range word.FindAllStringSubmatch(line, -1) {
				if !flags[command][f[1]] {
					t.Errorf("%s: member %s has no flag -%s: %s", name, command, f[1], line)
				}
			}
		}
	}
}

// shellBlocks returns the shell commands of a page.
func shellBlocks(page string) string {
	var all strings.Builder
	for _, block := range strings.Split(page, "```sh\n")[1:] {
		commands, _, _ := strings.Cut(block, "```")
		all.WriteString(commands)
	}
	return all.String()
}

// The manifests are well-formed, and name only what exists: flags of the program, their
// own labels, ports, volumes and Service.
func TestDocuments_KubernetesManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	flags := memberFlags(t)
	for _, path := range files {
		byKind := make(map[string]manifest)
		for _, text := range strings.Split(readDocument(t, "docs/kubernetes/"+filepath.Base(path)), "\n---\n") {
			m := parseManifest(t, path, text)
			byKind[m.text("kind")] = m
			if m.text("apiVersion") == "" || m.text("metadata.name") == "" {
				t.Errorf("%s: a manifest lacks apiVersion or metadata.name", path)
			}
		}
		workload := byKind["Deployment"]
		if workload == nil {
			workload = byKind["StatefulSet"]
		}
		checkWorkload(t, path, workload, byKind["Service"], byKind["PodDisruptionBudget"], flags)
	}
}

func checkWorkload(t *testing.T, path string, workload, service, budget manifest, flags map[string]bool) {
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
	const container = "spec.template.spec.containers.0."
	args, ports, volumes := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, arg := range workload.list(container + "args") {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg.text(""), "-"), "=")
		if args[name] = value; !flags[name] {
			t.Errorf("%s: member has no flag -%s", path, name)
		}
	}
	for _, p := range workload.list(container + "ports") {
		ports[p.text("name")] = p.text("containerPort")
	}
	for _, v := range append(workload.list("spec.template.spec.volumes"), workload.list("spec.volumeClaimTemplates")...) {
		volumes[v.text("name")+v.text("metadata.name")] = true
	}
	for _, m := range workload.list(container + "volumeMounts") {
		if !volumes[m.text("name")] {
			t.Errorf("%s: no volume %q", path, m.text("name"))
		}
	}
	want("-join", args["join"], service.text("metadata.name")+":"+service.text("spec.ports.0.port"))
	want("-bind", args["bind"], ":"+ports["group"])
	want("-probes", args["probes"], ":"+ports["probes"])
	want("-expect", args["expect"], workload.text("spec.replicas"))
	for _, probe := range []string{"readinessProbe", "livenessProbe"} {
		want(probe, workload.text(container+probe+".httpGet.port"), "probes")
	}
	if _, leaves := args["leave"]; leaves != (args["dir"] == "") {
		t.Errorf("%s: members with a directory must not leave, and those without must", path)
	}
}
