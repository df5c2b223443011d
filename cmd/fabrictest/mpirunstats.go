package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// writeStats prints the statistics of the ranks (--stats) and writes them to a folder
// (--out).
func (o *mpirunOptions) writeStats(cmd *cobra.Command, args []string, result mpirun.Result, began time.Time) error {
	if !o.stats && o.out == "" {
		return nil
	}
	all, err := ranks.ParseStats(result.Reports)
	if err != nil {
		return err
	}
	if o.stats {
		if err := ranks.WriteStats(cmd.ErrOrStderr(), all); err != nil {
			return err
		}
	}
	if o.out == "" {
		return nil
	}
	run := ranks.NewRun(o.command(args), o.run.Seed, began)
	run.Wall, run.Job = time.Since(began), o.settings.Report(&o.run)
	run.Job.Program, run.Job.Tier, run.Job.Code, run.Job.Stats = strings.Join(args, " "), o.on, result.Code, all
	paths, err := ranks.WriteFolder(o.out, run)
	if err == nil {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), "report:", paths.HTML)
	}
	return err
}

// command is the command line that repeats the run.
func (o *mpirunOptions) command(args []string) string {
	words := []string{o.program + " mpirun", fmt.Sprintf("-n %d", o.run.Ranks), "--on " + o.on}
	for _, f := range []struct {
		name, value, usual string
	}{
		{"per-host", fmt.Sprint(o.run.PerHost), "1"},
		{"rails", fmt.Sprint(o.run.Rails), "1"},
		{"provider", o.run.Provider, ""},
		{"no-icrc", fmt.Sprint(o.run.ICRCOffloaded), "false"},
		{"mtu", fmt.Sprint(o.run.MTU), "0"},
		{"loss", o.settings.Loss, "0%"},
		{"seed", fmt.Sprint(o.run.Seed), "1"},
		{"design", o.settings.Design, ""},
		{"protocol", o.settings.Protocol, ""},
		{"progress", o.settings.Progress, ""},
		{"eager", fmt.Sprint(o.settings.EagerLimit), "0"},
		{"limit", o.run.Limit.String(), "0s"},
		{"keep-going", fmt.Sprint(o.run.KeepGoing), "false"},
		{"bind", fmt.Sprint(o.run.Bind), "false"},
	} {
		if f.value != f.usual {
			words = append(words, "--"+f.name+"="+cmdline.Quote(f.value))
		}
	}
	for _, a := range args {
		words = append(words, cmdline.Quote(a))
	}
	return strings.Join(words, " ")
}
