package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxFolders is how many folders the root lists.
const maxFolders = 14

func TestRoot_ListsFewFolders(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			folders = append(folders, e.Name())
		}
	}
	if len(folders) > maxFolders {
		t.Errorf("the root has %d folders, at most %d: what no lock needs goes into contrib, and inputs of the root's fuzz tests into fuzz_inputs_test.go: %v",
			len(folders), maxFolders, folders)
	}
}

// workspace is what go.work says: the folders of its modules, and those that its comment names as left out.
type workspace struct {
	used, leftOut []string
}

var (
	useLine     = regexp.MustCompile(`(?m)^\t(\.(?:/\S+)?)$`)
	leftOutLine = regexp.MustCompile(`(?m)^//\t(\S+) +\S`)
	requirement = regexp.MustCompile(`(?m)^(?:require |\t)([^\s/]+\.\S+) (v\S+)`)
)

func parseWorkspace(text string) (w workspace) {
	for _, m := range useLine.FindAllStringSubmatch(text, -1) {
		w.used = append(w.used, strings.TrimPrefix(m[1], "./"))
	}
	for _, m := range leftOutLine.FindAllStringSubmatch(text, -1) {
		w.leftOut = append(w.leftOut, m[1])
	}
	return w
}

// misplaced finds the modules that are not exactly once in go.work, and names in it of what is no module.
func (w workspace) misplaced(modules []string) (faults []string) {
	for _, m := range modules {
		switch used, leftOut := slices.Contains(w.used, m), slices.Contains(w.leftOut, m); {
		case used && leftOut:
			faults = append(faults, "go.work uses "+m+" and names it as left out")
		case !used && !leftOut:
			faults = append(faults, "go.work neither uses "+m+" nor names it in its comment as left out, with the reason")
		}
	}
	for _, m := range append(slices.Clone(w.used), w.leftOut...) {
		if !slices.Contains(modules, m) {
			faults = append(faults, "go.work names "+m+", which has no go.mod")
		}
	}
	return faults
}

// requirements returns the versions in a go.mod file.
func requirements(text string) map[string]string {
	versions := make(map[string]string)
	for _, m := range requirement.FindAllStringSubmatch(text, -1) {
		versions[m[1]] = m[2]
	}
	return versions
}

// deviations finds what a module requires in another version than the root.
func deviations(name string, of, root map[string]string) (faults []string) {
	for path, version := range of {
		if want := root[path]; want != "" && want != version {
			faults = append(faults, "go.work uses "+name+", which requires "+path+" "+version+", and the root has "+want+": leave the module out, or bring it into line")
		}
	}
	slices.Sort(faults)
	return faults
}

// modules returns the folders with a go.mod, from the root.
func modules(t *testing.T) (found []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.Name() != "go.mod":
			return nil
		}
		relative, err := filepath.Rel(root, filepath.Dir(path))
		found = append(found, filepath.ToSlash(relative))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A workspace builds with the highest version that one of its modules requires. So that the root is built and
// tested as importers build it, no module of go.work may require a newer version of what the root requires. .ci/run
// also compares the versions that are linked, for which it needs the modules.
func TestWorkspace_LeavesVersionsAlone(t *testing.T) {
	w := parseWorkspace(read(t, filepath.Join(root, "go.work")))
	if !slices.Contains(w.used, ".") {
		t.Fatalf("go.work does not use the root, but %q", w.used)
	}
	report(t, w.misplaced(modules(t)))
	for _, m := range w.leftOut { // else each go command there fails, and advises to add it here
		if text := read(t, filepath.Join(root, m, "go.work")); !strings.Contains(text, "\nuse .\n") {
			t.Errorf("%s/go.work does not use that module alone", m)
		}
	}
	versions := requirements(read(t, filepath.Join(root, "go.mod")))
	if len(versions) == 0 {
		t.Fatal("go.mod: no requirements found")
	}
	for _, m := range w.used {
		report(t, deviations(m, requirements(read(t, filepath.Join(root, m, "go.mod"))), versions))
	}
}

func TestWorkspace_FindsViolations(t *testing.T) {
	w := parseWorkspace("// Left out:\n//\n//\tb    its versions\n//\tc    too\ngo 1.26.0\n\nuse (\n\t.\n\t./a\n\t./c\n)\n")
	for _, c := range []struct {
		modules []string
		want    string
	}{
		{[]string{".", "a", "b", "c"}, "uses c and names it"},
		{[]string{".", "a", "b", "x"}, "neither uses x"},
		{[]string{".", "b"}, "names a, which has no go.mod"},
	} {
		expect(t, w.misplaced(c.modules), c.want)
	}
	w = parseWorkspace("//\tb    its versions\nuse (\n\t.\n)\n")
	expect(t, w.misplaced([]string{".", "b"}), "")

	of := requirements("module x.org/a\n\ngo 1.26\n\nrequire x.org/one v1.0.0\n\nrequire (\n\tx.org/two v1.1.0 // indirect\n\tx.org/mine v3.0.0\n)\n")
	expect(t, deviations("a", of, map[string]string{"x.org/one": "v1.0.0", "x.org/two": "v1.1.0"}), "")
	expect(t, deviations("a", of, map[string]string{"x.org/one": "v0.9.0"}), "x.org/one v1.0.0")
	expect(t, deviations("a", of, map[string]string{"x.org/two": "v1.2.0"}), "x.org/two v1.1.0")
}
