package consultest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const configuration = `terraform {
  backend "consul" {
    address = %q
    scheme  = "http"
    path    = "terraform/state"
  }
}
variable "go" { default = "" }
resource "terraform_data" "x" {
  input            = var.go
  triggers_replace = [var.go]
  provisioner "local-exec" {
    command = "touch begun; while [ -n '${var.go}' ] && [ ! -e '${var.go}' ]; do sleep 0.1; done"
  }
}
`

// Terraform keeps its state in keys, and locks it: while one process applies, another one is refused, or waits. A
// killed one loses the lock with its session.
func TestTerraform(t *testing.T) {
	program, err := exec.LookPath("terraform")
	if err != nil {
		t.Skip("SKIPPED: terraform is not installed, so it was not tested: go install github.com/hashicorp/terraform@v1.5.7")
	}
	a := start(t, 3)
	command := func(dir string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(bounded(t), program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_INPUT=0")
		return cmd
	}
	run := func(dir string, args ...string) string {
		t.Helper()
		out, err := command(dir, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("terraform %s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	dirs := make([]string, 3) // a working copy at each member
	for i := range dirs {
		dirs[i] = t.TempDir()
		must(t, os.WriteFile(filepath.Join(dirs[i], "main.tf"), fmt.Appendf(nil, configuration, a.addr(i)), 0o600))
		run(dirs[i], "init", "-no-color")
	}
	if out := run(dirs[0], "apply", "-no-color", "-auto-approve"); !strings.Contains(out, "1 added") {
		t.Fatal(out)
	}
	if out := run(dirs[1], "plan", "-no-color"); !strings.Contains(out, "No changes") {
		t.Errorf("another working copy sees another state:\n%s", out)
	}

	release := filepath.Join(dirs[0], "release")
	applying := command(dirs[0], "apply", "-no-color", "-auto-approve", "-var", "go="+release)
	must(t, os.Remove(filepath.Join(dirs[0], "begun")))
	must(t, applying.Start())
	exists(t, filepath.Join(dirs[0], "begun"))
	out, err := command(dirs[1], "apply", "-no-color", "-auto-approve", "-lock-timeout=0s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Error acquiring the state lock") {
		t.Errorf("a second apply: %v\n%s", err, out)
	}
	waiting := command(dirs[1], "plan", "-no-color", "-lock-timeout="+patience.String())
	must(t, waiting.Start())
	must(t, os.WriteFile(release, nil, 0o600))
	must(t, applying.Wait())
	must(t, waiting.Wait())

	killed := command(dirs[0], "apply", "-no-color", "-auto-approve", "-var", "go="+release+"2")
	must(t, os.Remove(filepath.Join(dirs[0], "begun")))
	must(t, killed.Start())
	exists(t, filepath.Join(dirs[0], "begun"))
	must(t, killed.Process.Kill())
	_ = killed.Wait()
	must(t, os.WriteFile(release+"2", nil, 0o600)) // ends what it has started
	// The key is free after 35 s, and later if another leader is elected. Terraform tries after 19 s, 36 s, 53 s, and so on.
	run(dirs[2], "apply", "-no-color", "-auto-approve", "-lock-timeout="+patience.String())
}

// exists waits for a file.
func exists(t *testing.T, file string) {
	t.Helper()
	awaitFile(t, file, func(string) bool { return true })
}
