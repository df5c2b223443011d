package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
)

// mpirunOptions are those of `fabrictest mpirun`.
type mpirunOptions struct {
	run                        mpirun.Config
	on, seed, loss             string
	design, protocol, progress string
	eager                      int
	stats                      bool
	out                        string
	options                    mpi.Options // that these come to
	program                    string      // how we were called
}

// Tiers of --on.
const (
	onSim   = "sim"
	onNetNS = "netns"
)

func newMPIRunCommand(o *mpirunOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mpirun -n RANKS {PROGRAM | WORKLOAD} [ARGUMENT...]",
		Short: "Run a multi-rank program on a fabric",
		Long: `Run a program of many ranks, which exchange messages and share windows over RDMA,
on a fabric that is made for it and is gone when they have ended.

PROGRAM is a Go program that calls mpi.Main, and imports lab/mpihost so that it
finds out which rank it is. WORKLOAD is one of those that are built in:

` + workloadTable() + `
They take --class T, S, W or A, which is how large the problem is, --iterations N,
--compute TIME for each step, and --bytes N where messages may have any size. Each
checks its own answer. A program of the same name is run by its path, as ./ring.

In network namespaces each rank is a process, and every NIC a device in it that talks
over sockets; ranks on one host have addresses of their own. In simulation one process
is all ranks: time is virtual, and the same seed gives the same run.

--design is how a rank reaches its peers, --protocol how large messages travel, and
--progress when it attends to what others want: inside of its calls only (polling), or
also beside them (background).

The exit code is the first that is not 0, in the order of ranks. A rank that fails ends
the others in namespaces, and they are told in simulation.`,
		Example: `  fabrictest mpirun -n 4 ./my-ranks
  fabrictest mpirun -n 2 pingpong --bytes 64
  fabrictest mpirun -n 8 --on sim --stats cg --class S
  fabrictest mpirun -n 16 --on sim --protocol speculative --out lu/ lu
  fabrictest mpirun -n 16 --per-host 4 --on sim --seed 7 ./my-ranks   the same run again, byte for byte
  fabrictest mpirun -n 8 --on sim --provider dgiwarp --loss 1% ./my-ranks
  fabrictest mpirun -n 4 --on sim --rails 2 --design srq --protocol speculative --stats ./my-ranks`,
		ValidArgsFunction: completeWorkloads,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.main(cmd, args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what comes behind the program is the program's
	f.IntVarP(&o.run.Ranks, "ranks", "n", 2, "how many ranks")
	f.IntVar(&o.run.PerHost, "per-host", 1, "ranks on each host")
	f.IntVar(&o.run.Rails, "rails", 1, "NICs of each host, each on a subnet of its own")
	choiceFlag(cmd, &o.on, "on", "", "`TIER`: sim or netns (default: netns where it works)", onSim, onNetNS)
	providerFlag(cmd, &o.run.Provider, nics.Default, "the NICs are those of", "")
	f.BoolVar(&o.run.ICRCOffloaded, "no-icrc", false, "RoCE packets have no ICRC computed or checked, as if the cable did")
	f.IntVar(&o.run.MTU, "mtu", 0, "largest IP packet, in `BYTES` (default: 9000, in simulation 4200)")
	f.StringVar(&o.loss, "loss", "0%", "`SHARE` of packets that are lost, each by itself")
	seedFlag(cmd, &o.seed, "1", "happens", "")
	choiceFlag(cmd, &o.design, "design", "", "`NAME`: "+cmdline.Choices(designNames())+" (default: what suits the NICs)", designNames()...)
	choiceFlag(cmd, &o.protocol, "protocol", "", "of large messages, `NAME`: "+cmdline.Choices(protocolNames())+" (default: "+p2p.RGET.String()+")", protocolNames()...)
	choiceFlag(cmd, &o.progress, "progress", "", "`MODE`: "+cmdline.Choices(progressNames())+" (default: "+mpi.Polling.String()+")", progressNames()...)
	f.IntVar(&o.eager, "eager", 0, "`BYTES` of the largest message that is sent without asking (default: 4096)")
	f.DurationVar(&o.run.Limit, "limit", 0, "`TIME` after which it counts as hung: on the clock (default: never), or in simulation its own (default: 1h)")
	f.BoolVar(&o.run.KeepGoing, "keep-going", false, "let the others go on when a rank fails")
	f.BoolVar(&o.run.Bind, "bind", false, "in namespaces, keep each rank to one processor: for measurements, where there are enough of them")
	f.BoolVarP(&o.run.Label, "label", "l", false, "in namespaces, print the rank's number before each line")
	f.BoolVar(&o.stats, "stats", false, "print what the ranks did and what it took")
	f.StringVar(&o.out, "out", "", "`FOLDER` to be made, for the same as ranks.json and, with charts, as report.html")
	return cmd
}

func (o *mpirunOptions) main(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmdline.Errorf("name a program or a workload to run, as in 'fabrictest mpirun -n 4 ./my-ranks'")
	}
	if err := o.check(); err != nil {
		return err
	}
	var err error
	if o.run.Args, err = mpirun.RankArgs(args, o.run.Ranks, o.run.Seed); err != nil {
		return err
	}
	start, why, err := o.tier()
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

// tier returns the function that starts the ranks, and why it is not the default tier.
func (o *mpirunOptions) tier() (start func(context.Context, mpirun.Config) (mpirun.Result, error), why string, err error) {
	switch o.on {
	case onSim:
		return mpirun.InSimulation, "", nil
	case onNetNS:
		return mpirun.InNamespaces, "", nil
	case "":
		if cannot := netns.Available(); cannot != nil {
			o.on = onSim
			return mpirun.InSimulation, cannot.Error(), nil
		}
		o.on = onNetNS
		return mpirun.InNamespaces, "", nil
	}
	return nil, "", cmdline.Errorf("--on %s: give sim or netns", o.on)
}

// check makes a job of the flags, or returns an error with the name of the wrong flag.
func (o *mpirunOptions) check() (err error) {
	r := &o.run
	for _, n := range []struct {
		flag        string
		value       int
		least, most int
	}{
		{"ranks", r.Ranks, 1, maxRanks},
		{"per-host", r.PerHost, 1, maxRanks},
		{"rails", r.Rails, 1, 8},
		{"mtu", cmp.Or(r.MTU, 1280), 1280, 65535},
		{"eager", o.eager, 0, 1 << 30},
	} {
		if n.value < n.least || n.value > n.most {
			return cmdline.Errorf("--%s %d: give %d to %d", n.flag, n.value, n.least, n.most)
		}
	}
	if r.Seed, err = parseSeed(o.seed, 1); err != nil {
		return err
	}
	var loss scenarios.Percent
	if err := loss.UnmarshalText([]byte(o.loss)); err != nil {
		return cmdline.Errorf("--loss %s: %w", o.loss, err)
	}
	r.LossPPM, r.Reports = loss.PPM(), o.stats || o.out != ""
	if o.options, err = o.runtime(); err != nil {
		return err
	}
	if r.Options, err = json.Marshal(o.options); err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return &cmdline.Error{Err: err}
	}
	return nil
}

// maxRanks is how many ranks fit into the memory of a laptop.
const maxRanks = 4096

// runtime returns the options of the ranks' runtime.
func (o *mpirunOptions) runtime() (r mpi.Options, err error) {
	r.Carrier.Design = carrier.Design(o.design)
	r.P2P.EagerLimit = o.eager
	if _, err := oneOf("design", o.design, designNames()); err != nil {
		return r, err
	}
	protocol, err := oneOf("protocol", o.protocol, protocolNames())
	if err != nil {
		return r, err
	}
	progress, err := oneOf("progress", o.progress, progressNames())
	r.P2P.Protocol, r.Progress = p2p.Protocol(protocol), mpi.ProgressMode(progress)
	return r, err
}

// oneOf returns the index of a flag's value among names; 0 if it is empty.
func oneOf(flag, name string, names []string) (int, error) {
	if name == "" {
		return 0, nil
	}
	for i, n := range names {
		if n == name {
			return i, nil
		}
	}
	return 0, cmdline.Errorf("--%s %s: give %s", flag, name, cmdline.Choices(names))
}

func designNames() (names []string) {
	for _, d := range carrier.Designs() {
		names = append(names, string(d))
	}
	return names
}

// protocolNames and progressNames are in the order of their values.
func protocolNames() []string {
	return []string{p2p.RGET.String(), p2p.RPUT.String(), p2p.Speculative.String()}
}

func progressNames() []string { return []string{mpi.Polling.String(), mpi.Background.String()} }

// workloadTable lists the workloads, for the help.
func workloadTable() string {
	var b strings.Builder
	for _, wl := range work.All() {
		fmt.Fprintf(&b, "  %-12s %s\n", wl.Name, wl.Title)
	}
	return b.String()
}

// completeWorkloads offers workloads with what they do, and programs.
func completeWorkloads(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	all := work.All()
	words := make([]cobra.Completion, 0, len(all))
	for _, wl := range all {
		words = append(words, cobra.CompletionWithDesc(wl.Name, wl.Title))
	}
	return beginning(typed, words), cobra.ShellCompDirectiveDefault
}
