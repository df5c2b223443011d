package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// mpirunOptions are those of `fabrictest mpirun`.
type mpirunOptions struct {
	run      mpirun.Config
	settings mpirun.Settings
	on, seed string
	stats    bool
	out      string
	program  string // how we were called
}

// Tiers of --on.
const (
	onSim   = "sim"
	onNetNS = "netns"
)

// newMPIRunCommand returns the command 'fabrictest mpirun'.
func newMPIRunCommand(o *mpirunOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "mpirun -n RANKS {PROGRAM | WORKLOAD} [ARGUMENT...]",
		Short:             "Run a multi-rank program on a fabric",
		ValidArgsFunction: completeWorkloads,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.main(cmd, args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // words after the program are its arguments
	f.IntVarP(&o.run.Ranks, "ranks", "n", 2, "how many ranks")
	f.IntVar(&o.run.PerHost, "per-host", 1, "ranks on each host")
	f.IntVar(&o.run.Rails, "rails", 1, "NICs of each host, each on a subnet of its own")
	choiceFlag(cmd, &o.on, "on", "", "`TIER`: sim or netns (default: netns where it works)", onSim, onNetNS)
	providerFlag(cmd, &o.run.Provider, nics.Default, "the NICs are those of", "")
	f.StringVar(&o.run.Platform, "platform", "", "in simulation, hosts and NICs take the time of `NAME` (see list platforms), or of a YAML file")
	completeFlag(cmd, "platform", fixed(nics.PlatformNames()...))
	f.BoolVar(&o.run.ICRCOffloaded, "no-icrc", false, "do not compute or check the ICRC of RoCE packets")
	f.IntVar(&o.run.MTU, "mtu", 0, "largest IP packet, in `BYTES` (default: 9000, in simulation 4200)")
	f.StringVar(&o.settings.Loss, "loss", "0%", "`SHARE` of packets that are lost, at random")
	seedFlag(cmd, &o.seed, "1", "happens", "")
	choiceFlag(cmd, &o.settings.Design, "design", "", "`NAME`: "+cmdline.Choices(mpirun.Designs())+" (default: what suits the NICs)", mpirun.Designs()...)
	choiceFlag(cmd, &o.settings.Protocol, "protocol", "", "of large messages, `NAME`: "+cmdline.Choices(mpirun.Protocols())+" (default: "+mpirun.Protocols()[0]+")", mpirun.Protocols()...)
	choiceFlag(cmd, &o.settings.Progress, "progress", "", "`MODE`: "+cmdline.Choices(mpirun.ProgressModes())+" (default: "+mpirun.ProgressModes()[0]+")", mpirun.ProgressModes()...)
	f.IntVar(&o.settings.EagerLimit, "eager", 0, "`BYTES` of the largest message that is sent eagerly (default: 4096)")
	f.DurationVar(&o.run.Limit, "limit", 0, "`TIME` after which the run counts as hung (default: none), in simulation in virtual time (default: 1h)")
	f.BoolVar(&o.run.KeepGoing, "keep-going", false, "let the others go on when a rank fails")
	f.BoolVar(&o.run.Bind, "bind", false, "in namespaces, bind each rank to one processor, for measurements")
	f.BoolVarP(&o.run.Label, "label", "l", false, "in namespaces, print the rank's number before each line")
	f.BoolVar(&o.stats, "stats", false, "print statistics of the ranks")
	f.StringVar(&o.out, "out", "", "`FOLDER` for the statistics as ranks.json and report.html, which is created")
	return cmd
}

// main runs the ranks and writes their statistics.
func (o *mpirunOptions) main(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmdline.Errorf("name a program or a workload to run, as in 'fabrictest mpirun -n 4 ./my-ranks'")
	}
	var err error
	if o.run.Seed, err = parseSeed(o.seed, defaultSeed); err != nil {
		return err
	}
	if o.run.Platform != "" && !cmd.Flags().Changed("provider") {
		o.run.Provider = "" // that of the platform
	}
	o.run.Reports = o.stats || o.out != ""
	if err := o.settings.Apply(&o.run); err != nil {
		return err
	}
	if o.run.Args, err = mpirun.RankArgs(args, o.run.Ranks, o.run.Seed); err != nil {
		return err
	}
	start, why, err := o.chooseTier()
	if err != nil {
		return err
	}
	if why != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "In simulation: %s\n", why)
	}
	began := time.Now()
	if o.out != "" {
		if o.out, err = rankRuns.NewFolder(o.out, began); err != nil {
			return err
		}
	}
	result, err := start(cmd.Context(), o.run)
	if err != nil {
		return err
	}
	err = o.writeStats(cmd, args, result, began)
	if err == nil && result.Code != 0 {
		return exitError(result.Code)
	}
	return err
}

// chooseTier returns the function that starts the ranks on the tier o.on. Without --on it sets o.on
// to namespaces or, if these are not available, to the simulation, and returns why.
func (o *mpirunOptions) chooseTier() (start func(context.Context, mpirun.Config) (mpirun.Result, error), why string, err error) {
	if o.run.Platform != "" {
		if o.on == onNetNS {
			return nil, "", cmdline.Errorf("--platform: in namespaces time is real; leave out --on netns")
		}
		o.on = onSim
	}
	if o.on == "" {
		o.on = onNetNS
		if unavailable := netns.Available(); unavailable != nil {
			o.on, why = onSim, unavailable.Error()
		}
	}
	switch o.on {
	case onSim:
		return mpirun.InSimulation, why, nil
	case onNetNS:
		return mpirun.InNamespaces, "", nil
	}
	return nil, "", cmdline.Errorf("--on %s: give sim or netns", o.on)
}

// completeWorkloads offers workloads with what they do. The shell also offers files, which may be
// programs.
func completeWorkloads(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	all := work.All()
	words := make([]cobra.Completion, 0, len(all))
	for _, wl := range all {
		words = append(words, cobra.CompletionWithDesc(wl.Name, wl.Title))
	}
	return withPrefix(typed, words), cobra.ShellCompDirectiveDefault
}

// writeStats prints the statistics of the ranks (--stats) and writes them to a folder (--out).
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

// command is the command line that repeats the run, without the flags that change only its output.
func (o *mpirunOptions) command(args []string) string {
	words := []string{o.program + " mpirun", fmt.Sprintf("-n %d", o.run.Ranks), "--on " + o.on}
	for _, f := range []struct {
		name, value, defaultValue string
	}{
		{"per-host", fmt.Sprint(o.run.PerHost), "1"},
		{"rails", fmt.Sprint(o.run.Rails), "1"},
		{"provider", o.run.Provider, ""},
		{"platform", o.run.Platform, ""},
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
		if f.value != f.defaultValue {
			words = append(words, "--"+f.name+"="+cmdline.Quote(f.value))
		}
	}
	for _, a := range args {
		words = append(words, cmdline.Quote(a))
	}
	return strings.Join(words, " ")
}
