package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// mpirunOptions are those of `fabrictest mpirun`.
type mpirunOptions struct {
	run      mpirun.Config
	settings mpirun.Settings
	hosts    mpirunHosts
	on, seed string
	stats    bool
	out      string
	program  string // how we were called
}

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
	f.StringSliceVar(&o.run.Devices, "device", nil, "run on this host or on --hosts, over the libibverbs device `NAME`; may be repeated, each is a rail")
	o.hosts.addFlags(cmd, &o.run)
	choiceFlag(cmd, &o.on, "on", "", "`TIER`: sim or netns (default: netns where it works)", mpirun.Tiers()...)
	providerFlag(cmd, &o.run.Provider, nics.Default, "the NICs are those of", "")
	f.StringVar(&o.run.Platform, "platform", "", "in simulation, hosts and NICs take the time of `NAME` (see list platforms), or of a YAML file")
	completeFlag(cmd, "platform", fixed(nics.PlatformNames()...))
	cableFlag(cmd, &o.run.Cable)
	f.BoolVar(&o.run.ICRCOffloaded, "no-icrc", false, "do not compute or check the ICRC of RoCE packets")
	f.IntVar(&o.run.MTU, "mtu", 0, "largest IP packet, in `BYTES` (default: 9000, in simulation 4200)")
	f.StringVar(&o.settings.Loss, "loss", "0%", "`SHARE` of packets that are lost, at random")
	seedFlag(cmd, &o.seed, "1", "happens", "")
	choiceFlag(cmd, &o.settings.Design, "design", "", "`NAME`: "+cli.Choices(mpirun.Designs())+" (default: what suits the NICs)", mpirun.Designs()...)
	choiceFlag(cmd, &o.settings.Protocol, "protocol", "", "of large messages, `NAME`: "+cli.Choices(mpirun.Protocols())+" (default: "+mpirun.Protocols()[0]+")", mpirun.Protocols()...)
	choiceFlag(cmd, &o.settings.Progress, "progress", "", "`MODE`: "+cli.Choices(mpirun.ProgressModes())+" (default: "+mpirun.ProgressModes()[0]+")", mpirun.ProgressModes()...)
	f.IntVar(&o.settings.EagerLimit, "eager", 0, "`BYTES` of the largest message that is sent eagerly (default: 16384)")
	f.StringVar(&o.settings.Collectives, "collectives", "", "algorithms of collective operations, a `LIST` such as bcast=chain,allgather=ring,@FILE with a file of 'fabrictest tune' (default: $FABRICTEST_COLLECTIVES)")
	f.DurationVar(&o.run.Limit, "limit", 0, "`TIME` after which the run counts as hung (default: none), in simulation in virtual time (default: 1h)")
	f.BoolVar(&o.run.KeepGoing, "keep-going", false, "let the others go on when a rank fails")
	f.BoolVar(&o.run.Bind, "bind", false, "in namespaces, bind each rank to one processor, for measurements")
	f.BoolVarP(&o.run.Label, "label", "l", false, "in namespaces, print the rank's number before each line")
	f.BoolVar(&o.stats, "stats", false, "print statistics of the ranks")
	f.BoolVar(&o.settings.Arrivals, "arrivals", false, "record when ranks call collective operations, and print how far apart")
	f.StringSliceVar(&o.run.Checkers, "check", nil, "in simulation, check the calls of the ranks: `LIST` of "+cli.Choices(mpihost.Checks()))
	completeFlag(cmd, "check", fixed(mpihost.Checks()...))
	f.StringVar(&o.out, "out", "", "`FOLDER` for the statistics as ranks.json and report.html, which is created")
	return cmd
}

// main runs the ranks, in simulation or in namespaces (the tier), and writes their statistics.
func (o *mpirunOptions) main(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Errorf("name a program or a workload to run, as in 'fabrictest mpirun -n 4 ./my-ranks'")
	}
	var err error
	if o.run.Seed, err = cli.ParseSeed(o.seed, defaultSeed); err != nil {
		return err
	}
	if o.run.Platform != "" && !cmd.Flags().Changed("provider") {
		o.run.Provider = "" // that of the platform
	}
	o.run.Reports = o.stats || o.settings.Arrivals || o.out != ""
	tier, err := o.tier(cmd)
	if err != nil {
		return err
	}
	o.settings.On = tier.Name
	if err := o.settings.Apply(&o.run); err != nil {
		return err
	}
	if o.run.Args, err = mpirun.RankArgs(args, o.run.Ranks, o.run.Seed); err != nil {
		return err
	}
	if o.on = tier.Name; tier.WhySimulated != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "In simulation: %s\n", tier.WhySimulated)
	}
	if o.settings.NoRules {
		fmt.Fprintf(cmd.ErrOrStderr(), "With the default algorithms: %s has no rules for this fabric.\n", o.settings.Collectives)
	}
	began := time.Now()
	if o.out != "" {
		if o.out, err = rankRuns.NewFolder(o.out, began); err != nil {
			return err
		}
	}
	result, err := tier.Start(cmd.Context(), o.run)
	if err != nil {
		return err
	}
	err = o.writeStats(cmd, args, result, began)
	if err == nil && result.Code != 0 {
		return exitError(result.Code)
	}
	return err
}

// tier returns where the ranks run. With --device the fabric is that of the devices, which no flag can
// change.
func (o *mpirunOptions) tier(cmd *cobra.Command) (mpirun.Tier, error) {
	onHosts, err := o.hosts.apply(cmd, &o.run)
	switch {
	case err != nil:
		return mpirun.Tier{}, err
	case len(o.run.NetDevs) > 0:
		return o.netdevTier(cmd)
	case len(o.run.Devices) == 0:
		return mpirun.FindTier(o.on, o.run.Platform, o.run.Cable)
	}
	for _, name := range []string{"on", "provider", "platform", "cable", "no-icrc", "mtu", "loss", "rails"} {
		if cmd.Flags().Changed(name) {
			return mpirun.Tier{}, cli.Errorf("--%s is for emulated NICs: leave it out, or --device", name)
		}
	}
	o.run.Provider, o.run.Rails = "", len(o.run.Devices)
	if onHosts {
		return mpirun.HostsTier(&o.run)
	}
	return mpirun.DeviceTier()
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
	if !o.run.Reports {
		return nil
	}
	all, err := ranks.ParseStats(result.Reports)
	if err != nil {
		return err
	}
	arrivals, err := ranks.TakeArrivals(all)
	if err != nil {
		return err
	}
	if o.settings.Arrivals {
		if err := ranks.WriteArrivals(cmd.ErrOrStderr(), arrivals); err != nil {
			return err
		}
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
	run.Job.Arrivals = arrivals
	paths, err := ranks.WriteFolder(o.out, run)
	if err == nil {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), "report:", paths.HTML)
	}
	return err
}

// command is the command line that repeats the run, without the flags that change only its output.
func (o *mpirunOptions) command(args []string) string {
	return o.settings.CommandLine(o.program+" mpirun", o.on, &o.run, args)
}
