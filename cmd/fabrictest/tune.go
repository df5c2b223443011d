package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/tuner"
	"github.com/fabrictest/fabrictest/lab/tuning"
	"github.com/fabrictest/fabrictest/perf"
)

// tuneOptions are those of `fabrictest tune`.
type tuneOptions struct {
	tuner.Plan
	on, sizes, seed string
	out, page       string
	program         string // how we were called
}

// newTuneCommand returns the command 'fabrictest tune'.
func newTuneCommand(o *tuneOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Measure which algorithms of collective operations are best on a fabric",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.main(cmd) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Operations, "operation", nil, "measure the `OPERATION` only; may be repeated (default: all)")
	f.IntSliceVarP(&o.Ranks, "ranks", "n", []int{2, 4, 8}, "numbers of ranks")
	f.IntSliceVar(&o.PerHost, "per-host", []int{1}, "numbers of ranks on each host")
	f.StringVar(&o.sizes, "sizes", "8,64,512,4K,16K,64K,256K,1M", "`SIZES` of blocks, or of vectors, as in 8,64 or 8..1M")
	f.IntVar(&o.Job.Rails, "rails", 1, "NICs of each host, each on a subnet of its own")
	choiceFlag(cmd, &o.on, "on", "", "`TIER`: sim or netns (default: netns where it works)", mpirun.Tiers()...)
	providerFlag(cmd, &o.Job.Provider, nics.Default, "the NICs are those of", "")
	f.StringVar(&o.Job.Platform, "platform", "", "in simulation, hosts and NICs take the time of `NAME` (see list platforms), or of a YAML file")
	completeFlag(cmd, "platform", fixed(nics.PlatformNames()...))
	cableFlag(cmd, &o.Job.Cable)
	f.BoolVar(&o.Job.ICRCOffloaded, "no-icrc", false, "do not compute or check the ICRC of RoCE packets")
	f.BoolVar(&o.Job.Bind, "bind", false, "in namespaces, bind each rank to one processor")
	seedFlag(cmd, &o.seed, "1", "happens", "")
	f.DurationVar(&o.Time, "time", 5*time.Minute, "measure for so long; in simulation, leave out what does not fit")
	f.StringVar(&o.out, "out", "", "write the table to `FILE` (default: print it)")
	f.StringVar(&o.page, "html", "", "also write a page with maps of the algorithms to `FILE`")
	return cmd
}

// main measures, and writes the table and the page.
func (o *tuneOptions) main(cmd *cobra.Command) (err error) {
	if o.Job.Seed, err = cli.ParseSeed(o.seed, defaultSeed); err != nil {
		return err
	}
	if o.Sizes, err = perf.ParseSizes(o.sizes); err != nil {
		return err
	}
	if o.Job.Platform != "" && !cmd.Flags().Changed("provider") {
		o.Job.Provider = "" // that of the platform
	}
	if o.Tier, err = mpirun.FindTier(o.on, o.Job.Platform, o.Job.Cable); err != nil {
		return err
	}
	progress := newProgressLine(cmd.ErrOrStderr())
	o.Progress = progress.Report
	r, err := o.Measure(cmd.Context())
	progress.Clear()
	if err != nil {
		return err
	}
	command := o.command(cmd)
	file := &tuning.File{Version: 1, Tables: []tuning.Table{*r.Table(command)}}
	if o.out == "" {
		err = file.Write(cmd.OutOrStdout())
	} else {
		err = cli.WriteFile(o.out, file.Write)
	}
	if err != nil {
		return err
	}
	for _, text := range r.LeftOut {
		fmt.Fprintln(cmd.ErrOrStderr(), "Left out:", text)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Another algorithm than the default is best at %d of %d points.\n", r.Better(), len(r.Points))
	return cli.WriteFile(o.page, func(w io.Writer) error { return r.WritePage(w, command) })
}

// command is the command line that repeats the measurement.
func (o *tuneOptions) command(cmd *cobra.Command) string {
	l := cli.NewLine(o.program + " tune")
	for _, name := range []string{"operation", "ranks", "per-host", "sizes", "rails", "on", "provider", "platform", "cable", "no-icrc", "bind", "seed", "time"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			value := f.Value.String()
			if n := len(value); n > 1 && value[0] == '[' {
				value = value[1 : n-1] // of a list
			}
			l.Flag(name, value)
		}
	}
	return l.String()
}
