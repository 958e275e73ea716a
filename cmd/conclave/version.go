package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/wire"
)

type versionView struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Level    uint32 `json:"featureLevel"` // the highest that an agent of this build supports
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Args: exactly(), Short: "Show the version of this program",
		Long: "Show the version of this program, and the highest feature level that an agent of it supports. conclave members shows those of the members.",
		RunE: func(*cobra.Command, []string) error {
			v := versionView{conclave.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, wire.FeatureLevel}
			return p.one(v, func(w *tabwriter.Writer) {
				fmt.Fprintf(w, "version:\t%s\nbuilt with:\t%s for %s\nfeature level:\t%d\n", v.Version, v.Go, v.Platform, v.Level)
			})
		},
	}
}

// buildsText counts the members of each build, and states the group's feature level, which rises after an upgrade.
func buildsText(s conclave.Status) string {
	members := make(map[string]int)
	for _, m := range s.Members {
		members[m.Build]++
	}
	var parts []string
	for _, build := range slices.Sorted(maps.Keys(members)) {
		text := "not known"
		if build != "" {
			text = name(build)
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", text, count(members[build], "member")))
	}
	return fmt.Sprintf("%s; feature level %s", strings.Join(parts, ", "), levelText(s.FeatureLevel))
}
