package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

func (p *program) jobsCommand() *cobra.Command {
	var limit int
	var remove bool
	cmd := &cobra.Command{
		Use: "jobs [NAME]", Args: between(0, "NAME"), Short: "List the jobs, or the retained runs of one",
		Long: "List the jobs, or the retained runs of one, the last started first. A run of conclave job or Job.Once has a key, and one of Job.Every the number of its period.\n\n" +
			"--delete deletes what the group retains of a job. Afterwards each of its keys can run again, also one that has run. It is refused while a run is under way or awaited, " +
			"and until a lock-delay or the period of Job.Every has passed.",
		ValidArgsFunction: p.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case remove && len(args) == 0:
				return usagef("missing NAME of the job to delete")
			case remove:
				return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error { return p.deleteJob(ctx, c, args[0]) })
			case len(args) == 1:
				return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error { return p.showJob(ctx, c, args[0]) })
			}
			return p.connected(cmd.Context(), func(c groupClient) error { return p.listJobs(cmd.Context(), c, limit) })
		},
	}
	limitFlag(cmd.Flags(), &limit)
	cmd.Flags().BoolVar(&remove, "delete", false, "delete what the group retains of the job")
	return cmd
}

// jobView is a job, without its runs in a listing.
type jobView struct {
	Name    string    `json:"name"`
	Periods uint64    `json:"periods,omitempty"` // runs of Every that have started
	Running int       `json:"running"`
	Waiting int       `json:"waiting"`
	Runs    []runView `json:"runs,omitempty"`
}

type runView struct {
	Key      string             `json:"key,omitempty"`
	Period   uint64             `json:"period,omitempty"`
	Result   string             `json:"result"`
	Attempt  int                `json:"attempt,omitempty"`
	Node     conclave.MemberID  `json:"node"`
	NodeName string             `json:"node_name,omitempty"`
	Client   bool               `json:"client,omitempty"`
	Session  conclave.SessionID `json:"session"`
	Fence    conclave.Fence     `json:"fence"`
	Started  float64            `json:"started"`         // seconds ago
	Ended    *float64           `json:"ended,omitempty"` // seconds ago; absent: it is under way
	Error    string             `json:"error,omitempty"`
	Due      float64            `json:"due,omitempty"` // seconds until the next run of Every
}

func jobOf(j conclave.JobInfo) jobView {
	return jobView{Name: j.Name, Periods: j.Periods, Running: j.Running, Waiting: j.Waiting}
}

func runOf(r conclave.JobRun, names memberNames) runView {
	v := runView{
		Key: r.Key, Period: r.Period, Result: r.Result.String(), Attempt: r.Attempt, Node: r.Node, NodeName: names[r.Node], Client: r.Client, Session: r.Session,
		Fence: r.Fence, Started: r.Started.Seconds(), Error: r.Error, Due: r.Due.Seconds(),
	}
	if r.Result != conclave.JobRunning {
		ended := r.Ended.Seconds()
		v.Ended = &ended
	}
	return v
}

func (p *program) listJobs(ctx context.Context, c groupClient, limit int) error {
	return many(p, limit, "JOB RUNNING WAITING PERIODS", c.Jobs(ctx, ""), func(j conclave.JobInfo) (any, []string) {
		return jobOf(j), []string{name(j.Name), fmt.Sprint(j.Running), fmt.Sprint(j.Waiting), fmt.Sprint(j.Periods)}
	})
}

func (p *program) showJob(ctx context.Context, c groupClient, job string) error {
	names, err := p.memberNames(ctx, c)
	if err != nil {
		return err
	}
	info, err := c.Job(job).Info(ctx)
	if err != nil {
		return err
	}
	v := jobOf(info)
	for _, r := range info.Runs {
		v.Runs = append(v.Runs, runOf(r, names))
	}
	return p.one(v, func(w *tabwriter.Writer) { printJob(w, info, names) })
}

func printJob(w *tabwriter.Writer, info conclave.JobInfo, names memberNames) {
	fmt.Fprintf(w, "job:\t%s\n", name(info.Name))
	fmt.Fprintf(w, "runs:\t%d under way, %d awaited\n", info.Running, info.Waiting)
	fmt.Fprint(w, "\nKEY\tRESULT\tATTEMPT\tSTARTED\tENDED\tPROCESS\tFENCE\tERROR\n")
	for _, r := range info.Runs {
		key, attempt, ended := name(r.Key), fmt.Sprint(r.Attempt), span(r.Ended)+" ago"
		if r.Period != 0 {
			key, attempt = fmt.Sprint("period ", r.Period), "-"
		}
		if r.Result == conclave.JobRunning {
			ended = "-"
		}
		fmt.Fprintf(w, "%s\t%v\t%s\t%s ago\t%s\t%s\t%v\t%s\n", key, r.Result, attempt, span(r.Started), ended, names.holder(r.Node, r.Client, ""), r.Fence, name(r.Error))
	}
}

func (p *program) deleteJob(ctx context.Context, c groupClient, job string) error {
	if err := c.Job(job).Delete(ctx); err != nil {
		return err
	}
	return p.one(map[string]any{"deleted": job}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s is deleted: each of its keys can run again\n", name(job))
	})
}

// completeJobs completes the name of a job for a shell.
func (p *program) completeJobs(cmd *cobra.Command, args []string, beginning string) ([]string, cobra.ShellCompDirective) {
	return p.completeNames(cmd, args, func(ctx context.Context, c groupClient, add func(string) bool) error {
		for j, err := range c.Jobs(ctx, beginning) {
			if err != nil || !add(j.Name) {
				return err
			}
		}
		return nil
	})
}
