// Package version names the build of this module that runs in a process, for people and for other members.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

const module = "github.com/conclave-go/conclave"

// MaxLength bounds a version, in bytes.
const MaxLength = 64

// release is set by the linker where a program is built without the repository's history, as in the Dockerfile:
//
//	-ldflags "-X github.com/conclave-go/conclave/internal/version.release=v0.1.0"
var release string

// Current is that of this process.
func Current() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case release != "":
		return bounded(release)
	case !ok:
		return "unknown"
	}
	return bounded(of(info))
}

// of returns the version of this module in a program: that of its release, or else "(devel)" with the revision, which only
// a program of this repository has.
func of(info *debug.BuildInfo) string {
	if !strings.HasPrefix(info.Main.Path+"/", module+"/") {
		return cmp.Or(required(info), develop)
	}
	// This module, or cmd/conclave and the others beside it, which are released with it. Before its first tag a
	// module is at v0.0.0 with the revision.
	if v := info.Main.Version; v != "" && v != develop && !strings.HasPrefix(v, "v0.0.0-") {
		return v
	}
	if revision := revisionOf(info); revision != "" {
		return develop + " " + revision
	}
	return develop
}

// develop is what package debug reports of a module without a version.
const develop = "(devel)"

// required returns the version of this module as a dependency.
func required(info *debug.BuildInfo) string {
	for _, m := range info.Deps {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return m.Version
	}
	return ""
}

// revisionOf returns the commit of a program.
func revisionOf(info *debug.BuildInfo) (revision string) {
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified && revision != "" {
		revision += "+dirty"
	}
	return revision
}

func bounded(version string) string { return version[:min(len(version), MaxLength)] }

// Stated returns what another process states to be its version; "", unknown, unless it is printable ASCII within the
// bound. It is for people: nothing may depend on it.
func Stated(version string) string {
	if len(version) > MaxLength {
		return ""
	}
	for _, b := range []byte(version) {
		if b < ' ' || b > '~' {
			return ""
		}
	}
	return version
}
