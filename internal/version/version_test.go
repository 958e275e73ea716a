package version

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.modified", Value: "false"}}
	modified := []debug.BuildSetting{revision[0], {Key: "vcs.modified", Value: "true"}}
	conclave := func(version string, replace *debug.Module) []*debug.Module {
		return []*debug.Module{{Path: "example.org/other", Version: "v3.0.0"}, {Path: module, Version: version, Replace: replace}}
	}
	for name, test := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"a release": {debug.BuildInfo{Main: debug.Module{Path: "example.org/orders", Version: "v9.0.0"}, Deps: conclave("v0.1.0", nil)}, "v0.1.0"},
		"a fork": {debug.BuildInfo{Main: debug.Module{Path: "example.org/orders"},
			Deps: conclave("v0.1.0", &debug.Module{Path: "example.org/fork", Version: "v0.1.1"})}, "v0.1.1"},
		"a directory": {debug.BuildInfo{Main: debug.Module{Path: "example.org/orders", Version: "v9.0.0"},
			Deps: conclave("v0.1.0", &debug.Module{Path: "../conclave"}), Settings: revision}, "(devel)"},
		"a module of this repository": {debug.BuildInfo{Main: debug.Module{Path: module + "/cmd/conclave", Version: "v0.0.0-2026"},
			Deps: conclave("v0.0.0", &debug.Module{Path: "../.."}), Settings: revision}, "(devel) 0123456789ab"},
		"a modified one": {debug.BuildInfo{Main: debug.Module{Path: module + "/cmd/conclave", Version: "(devel)"},
			Deps: conclave("v0.0.0", &debug.Module{Path: "../.."}), Settings: modified}, "(devel) 0123456789ab+dirty"},
		"a released one": {debug.BuildInfo{Main: debug.Module{Path: module + "/cmd/conclave", Version: "v0.1.0"},
			Deps: conclave("v0.0.0", &debug.Module{Path: "../..", Version: "(devel)"}), Settings: revision}, "v0.1.0"},
		"a commit of a dependency": {debug.BuildInfo{Main: debug.Module{Path: "example.org/orders"},
			Deps: conclave("v0.0.0-20261126153728-b87a25ea04e8", nil), Settings: revision}, "v0.0.0-20261126153728-b87a25ea04e8"},
		"a program before the first release": {debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-20261126153728-0123456789ab"},
			Settings: revision}, "(devel) 0123456789ab"},
		"a module with a similar name": {debug.BuildInfo{Main: debug.Module{Path: module + "-other"},
			Deps: conclave("v0.0.0", &debug.Module{Path: "../.."}), Settings: revision}, "(devel)"},
		"a program of this module": {debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.1.0+dirty"}, Settings: modified}, "v0.1.0+dirty"},
		"a test of this module":    {debug.BuildInfo{Main: debug.Module{Path: module}}, "(devel)"},
		"without modules":          {debug.BuildInfo{}, "(devel)"},
	} {
		if got := of(&test.info); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := bounded("v0.1.0-" + strings.Repeat("x", MaxLength)); len(got) != MaxLength || Stated(got) != got {
		t.Errorf("%q", got)
	}
	if got := Current(); got == "" || Stated(got) != got {
		t.Errorf("of this test: %q", got)
	}
}

// The Dockerfile sets a version that exists: the linker ignores another name.
func TestRelease_Dockerfile(t *testing.T) {
	dockerfile, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("version.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(dockerfile), "-X "+module+"/internal/version.release=$VERSION") || !strings.Contains(string(source), "\nvar release string\n") {
		t.Error("the Dockerfile does not set the version")
	}
}

func TestStated(t *testing.T) {
	for version, want := range map[string]string{
		"": "", "v0.1.0": "v0.1.0", "(devel) 0123456789ab+dirty": "(devel) 0123456789ab+dirty", "v1\x1b[31m": "", "v1\n": "", "v1\u202e": "", "v\xff": "",
		strings.Repeat("v", MaxLength): strings.Repeat("v", MaxLength), strings.Repeat("v", MaxLength+1): "",
	} {
		if got := Stated(version); got != want {
			t.Errorf("%q is %q, want %q", version, got, want)
		}
	}
}
