package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// decodeStats reads what the ranks reported; nil for one that reported nothing.
func decodeStats(reports []json.RawMessage) ([]ranks.Values, error) {
	all := make([]ranks.Values, len(reports))
	for rank, text := range reports {
		if text == nil {
			continue
		}
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("statistics of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// printRankStats prints what the ranks reported: of each figure the sum, the least and
// the most. Figures that are zero everywhere are left out.
func printRankStats(w io.Writer, all []ranks.Values) error {
	var there []ranks.Values
	for _, s := range all {
		if s != nil {
			there = append(there, s)
		}
	}
	const line = "%-34s %12s %12s %12s\n"
	fmt.Fprintf(w, line, fmt.Sprintf("%d of %s", len(there), units.Plural(len(all), "rank")), "all", "least", "most")
	for _, t := range ranks.Totals(there) {
		if _, err := fmt.Fprintf(w, line, t.Name, t.Shown(), t.Show(t.Least), t.Show(t.Most)); err != nil {
			return err
		}
	}
	return nil
}

// account shows what the ranks did, as it was asked for: as a table, and as a folder with
// a page.
func (o *mpirunOptions) account(cmd *cobra.Command, args []string, result mpirun.Result, began time.Time) error {
	if !o.stats && o.out == "" {
		return nil
	}
	all, err := decodeStats(result.Reports)
	if err != nil {
		return err
	}
	if o.stats {
		if err := printRankStats(cmd.ErrOrStderr(), all); err != nil {
			return err
		}
	}
	if o.out == "" {
		return nil
	}
	run := &ranks.Run{
		Tool: toolVersion(), Command: o.command(args), Seed: o.run.Seed, Started: began, Wall: time.Since(began), Machine: thisMachine(),
		Job: &ranks.Job{
			Program: strings.Join(args, " "), Ranks: o.run.Ranks, PerHost: o.run.PerHost, Rails: o.run.Rails, Tier: o.on, Provider: o.run.Provider,
			Design: o.design, Protocol: protocolNames()[o.options.P2P.Protocol], Progress: o.options.Progress.String(), LossPPM: o.run.LossPPM,
			Code: result.Code, Stats: all,
		},
	}
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
		{"loss", o.loss, "0%"},
		{"seed", fmt.Sprint(o.run.Seed), "1"},
		{"design", o.design, ""},
		{"protocol", o.protocol, ""},
		{"progress", o.progress, ""},
		{"eager", fmt.Sprint(o.eager), "0"},
		{"limit", o.run.Limit.String(), "0s"},
		{"keep-going", fmt.Sprint(o.run.KeepGoing), "false"},
		{"bind", fmt.Sprint(o.run.Bind), "false"},
	} {
		if f.value != f.usual {
			words = append(words, "--"+f.name+"="+quote(f.value))
		}
	}
	for _, a := range args {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}
