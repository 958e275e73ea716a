package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// These commands work on a directory on which no member runs, and ask no group.

func (p *program) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify DIR", Args: exactly("DIR"), Short: "Check a member's directory and print what it has",
		RunE: func(_ *cobra.Command, args []string) error { return p.verify(args[0]) },
	}
}

func (p *program) verify(dir string) error {
	info, err := conclave.Verify(dir)
	if err != nil {
		return err
	}
	return p.one(dirOf(info), func(w *tabwriter.Writer) { fmt.Fprint(w, info) })
}

type dirView struct {
	Dir          string              `json:"dir"`
	Group        string              `json:"group"`
	Cluster      string              `json:"cluster"`
	Member       conclave.MemberID   `json:"member"`
	Boots        uint64              `json:"boots"`
	Seed         bool                `json:"seed"`
	Removed      bool                `json:"removed"`
	Diverged     bool                `json:"diverged"`
	Term         uint64              `json:"term"`
	Applied      uint64              `json:"applied"`
	Commit       uint64              `json:"commit"`
	Last         uint64              `json:"last"`
	LastTerm     uint64              `json:"lastTerm"`
	Voters       []conclave.MemberID `json:"voters"`
	Standbys     []conclave.MemberID `json:"standbys"`
	FeatureLevel uint32              `json:"featureLevel"`
	Keys         int                 `json:"keys"`
	Sessions     int                 `json:"sessions"`
	Locks        int                 `json:"locks"`
	Semaphores   int                 `json:"semaphores"`
	Fence        string              `json:"fence"` // the largest granted; "": none
	Groups       []dirGroupView      `json:"groups"`
}

// dirGroupView is a further group.
type dirGroupView struct {
	Name       string `json:"name"`
	Number     uint32 `json:"number"`
	Applied    uint64 `json:"applied"`
	Commit     uint64 `json:"commit"`
	Last       uint64 `json:"last"`
	LastTerm   uint64 `json:"lastTerm"`
	Keys       int    `json:"keys"`
	Sessions   int    `json:"sessions"`
	Locks      int    `json:"locks"`
	Semaphores int    `json:"semaphores"`
	Fence      string `json:"fence"` // as in dirView
}

func dirOf(i conclave.DirInfo) dirView {
	v := dirView{
		Dir: i.Dir, Group: i.Group, Cluster: i.Cluster, Member: i.Member, Boots: i.Boots, Seed: i.Seed, Removed: i.Removed, Diverged: i.Diverged,
		Term: i.Term, Applied: i.Applied, Commit: i.Commit, Last: i.Last, LastTerm: i.LastTerm, Voters: i.Voters, Standbys: i.Standbys,
		FeatureLevel: i.FeatureLevel, Keys: i.Keys, Sessions: i.Sessions, Locks: i.Locks, Semaphores: i.Semaphores, Fence: largest(i.Fence),
		Groups: []dirGroupView{},
	}
	for _, g := range i.Groups {
		v.Groups = append(v.Groups, dirGroupView{
			Name: g.Name, Number: g.Number, Applied: g.Applied, Commit: g.Commit, Last: g.Last, LastTerm: g.LastTerm, Keys: g.Keys, Sessions: g.Sessions,
			Locks: g.Locks, Semaphores: g.Semaphores, Fence: largest(g.Fence),
		})
	}
	return v
}

// largest is a largest fence as it is printed; "": none was granted.
func largest(f conclave.Fence) string {
	if f == 0 {
		return ""
	}
	return f.String()
}

func (p *program) restoreCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "restore FILE --dir DIR", Args: exactly("FILE"), Short: "Make an empty directory the seed of a new group, from a backup",
		Long: "Make an empty or missing directory the seed of a new group, with the keys of a backup, and with all further groups that it has. Then start an agent on it, without --join, and " +
			"the other members with --join and empty directories of their own. Stop the old group permanently before.",
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			if err := conclave.Restore(cmd.Context(), dir, file); err != nil {
				return cause(cmd.Context(), err)
			}
			return p.verify(dir)
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}

func (p *program) recoverCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "recover --dir DIR", Args: exactly(), Short: "Make a new group from one surviving directory, after the majority is lost permanently",
		Long: "Make the directory of one member the seed of a new group, after the majority of the voters is lost permanently. Run verify on each surviving " +
			"directory first and choose the one with the highest last term and, among equal ones, the highest last index; another directory may have more of a further group. Keep a copy of it. No process " +
			"of the old group may run any more.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := conclave.Recover(cmd.Context(), dir); err != nil {
				return cause(cmd.Context(), err)
			}
			return p.verify(dir)
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "the `directory` (required)")
	_ = cmd.MarkFlagRequired("dir") // it exists
}
