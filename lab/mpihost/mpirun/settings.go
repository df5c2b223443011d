package mpirun

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/tuning"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report/ranks"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// MaxRanks is how many ranks fit into the memory of a laptop.
const MaxRanks = 4096

const minMTU = 1280 // of IPv6

// Settings are the command-line options of the ranks' runtime. Empty and 0 mean the default.
type Settings struct {
	Design, Protocol, Progress string
	EagerLimit                 int
	Loss                       string // the share of packets that are lost, as in 1%
	Collectives                string // algorithms by operation and files, as in bcast=chain,@tuned.yaml
	On                         string // the name of the tier, for which files have rules
	FewBuffers                 bool   // see mpihost.UseFewBuffers
	Arrivals                   bool   // record when ranks call collective operations
	NoRules                    bool   // set by Apply if no rule of the files is for the fabric
}

// collectivesVariable is the environment variable for algorithms that no flag names.
const collectivesVariable = "FABRICTEST_COLLECTIVES"

// Apply checks the settings and the job c, and sets the loss and the options of c. An error
// names the flag that is wrong.
func (s *Settings) Apply(c *Config) (err error) {
	for _, n := range []struct {
		flag     string
		value    int
		min, max int
	}{
		{"ranks", c.Ranks, 1, MaxRanks},
		{"per-host", c.PerHost, 1, MaxRanks},
		{"rails", c.Rails, 1, wire.MaxRails},
		{"mtu", cmp.Or(c.MTU, minMTU), minMTU, 65535}, // 0 is the default
		{"eager", s.EagerLimit, 0, 1 << 30},
	} {
		if n.value < n.min || n.value > n.max {
			return cli.Errorf("--%s %d: give %d to %d", n.flag, n.value, n.min, n.max)
		}
	}
	for _, name := range c.Checkers {
		if _, err := ChoiceIndex("check", name, mpihost.Checks()); err != nil {
			return err
		}
		if s.On != onSim {
			return cli.Errorf("--check: calls are checked in simulation only: add --on sim")
		}
	}
	var loss scenarios.Percent
	if err := loss.UnmarshalText([]byte(s.Loss)); err != nil {
		return cli.Errorf("--loss %s: %w", s.Loss, err)
	}
	c.LossPPM = loss.PPM()
	options := mpi.Options{Carrier: carrier.Config{Design: carrier.Design(s.Design)}, RecordArrivals: s.Arrivals}
	options.P2P.EagerLimit = s.EagerLimit
	if s.FewBuffers {
		mpihost.UseFewBuffers(&options.Carrier)
	}
	s.Collectives = cmp.Or(s.Collectives, os.Getenv(collectivesVariable))
	algorithms, files := coll.SplitFiles(s.Collectives)
	if err := options.Collectives.UnmarshalText([]byte(algorithms)); err != nil {
		return cli.Errorf("--collectives %s: %w", s.Collectives, err)
	}
	if len(files) > 0 {
		fabric, err := c.TuningFabric(s.On)
		if err == nil {
			options.Rules, err = tuning.RulesIn(files, fabric)
		}
		if err != nil {
			return cli.Errorf("--collectives %s: %w", s.Collectives, err)
		}
		s.NoRules = len(options.Rules) == 0
	}
	if _, err := ChoiceIndex("design", s.Design, Designs()); err != nil {
		return err
	}
	protocol, err := ChoiceIndex("protocol", s.Protocol, Protocols())
	if err != nil {
		return err
	}
	progress, err := ChoiceIndex("progress", s.Progress, ProgressModes())
	if err != nil {
		return err
	}
	options.P2P.Protocol, options.Progress = p2p.Protocol(protocol), mpi.ProgressMode(progress)
	if c.Options, err = json.Marshal(options); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return &cli.Error{Err: err}
	}
	return nil
}

// TuningFabric returns the values by which a job on a tier selects the tables that `fabrictest tune` has
// written: tier, provider, platform, topology, rails and cable.
func (c *Config) TuningFabric(tier string) (*tuning.Fabric, error) {
	f := &tuning.Fabric{Tier: tier, Provider: c.Provider, Platform: tuning.None, Topology: tuning.Switch, Rails: max(c.Rails, 1), Cable: tuning.None}
	if tier == onNetNS {
		f.Cable = cmp.Or(string(c.Cable), string(scenarios.VethPair))
	}
	if len(c.Devices) > 0 {
		f.Provider = ibv.ProviderName
		if len(c.Hosts) == 0 {
			f.Topology = tuning.None // loopback
		}
	}
	if c.Platform != "" {
		p, err := nics.LoadPlatform(c.Platform)
		if err != nil {
			return nil, err
		}
		f.Platform, f.Provider = p.Name, cmp.Or(f.Provider, p.Provider)
	}
	f.Provider = cmp.Or(f.Provider, nics.Default)
	return f, nil
}

// Report returns the description of a job with these settings for a report, without the
// results of its ranks.
func (s *Settings) Report(c *Config) *ranks.Job {
	return &ranks.Job{
		Ranks: c.Ranks, PerHost: c.PerHost, Rails: c.Rails, Provider: cmp.Or(strings.Join(c.Devices, ","), c.Provider), LossPPM: c.LossPPM, Design: s.Design,
		Protocol: cmp.Or(s.Protocol, Protocols()[0]), Progress: cmp.Or(s.Progress, ProgressModes()[0]),
	}
}

// ChoiceIndex returns the index of a flag's value among its choices; 0 if the value is empty.
func ChoiceIndex(flag, value string, choices []string) (int, error) {
	i := slices.Index(choices, value)
	if i < 0 && value != "" {
		return 0, cli.Errorf("--%s %s: give %s", flag, value, cli.Choices(choices))
	}
	return max(i, 0), nil
}

// Designs returns the names of carrier's designs: its choices of transports between hosts.
func Designs() (names []string) {
	for _, d := range carrier.Designs() {
		names = append(names, string(d))
	}
	return names
}

// Protocols returns the names of the protocols of large messages, in the order of their
// values. The first is the default.
func Protocols() []string {
	return []string{p2p.RGET.String(), p2p.RPUT.String(), p2p.Speculative.String()}
}

// ProgressModes returns the names of the progress modes in the order of their values, default
// first.
func ProgressModes() []string { return []string{mpi.Polling.String(), mpi.Background.String()} }

// WorkloadCommand is the first argument of a process that runs a built-in workload. Its
// program must call WorkloadMain.
const WorkloadCommand = "mpi-rank"

// IsWorkload reports whether a name is that of a built-in workload, and not of a program.
func IsWorkload(name string) bool {
	_, err := work.Find(name)
	return err == nil && !strings.ContainsRune(name, '/')
}

// RankArgs returns the command line of a rank. words are the name of a workload or program, and
// its arguments. If the name has no slash and is that of a built-in workload, the command is this
// program with WorkloadCommand, words and the seed; else it is the program of that name.
func RankArgs(words []string, ranks int, seed uint64) ([]string, error) {
	name, isPath := words[0], strings.ContainsRune(words[0], '/')
	wl, notFound := work.Find(name)
	if !isPath && notFound == nil {
		p, err := parseParams(wl, words[1:])
		if err == nil {
			err = wl.Check(ranks, p.Params)
		}
		if err != nil {
			return nil, &cli.Error{Err: err}
		}
		self, err := os.Executable()
		all := append([]string{self, WorkloadCommand}, words...)
		return append(all, "--seed", strconv.FormatUint(seed, 10)), err
	}
	path, err := exec.LookPath(name)
	switch {
	case err != nil && isPath:
		return nil, &cli.Error{Err: err}
	case err != nil:
		return nil, cli.Errorf("there is no program %s, and %w", name, notFound)
	}
	return append([]string{path}, words[1:]...), nil
}

// workParams are the parameters of a workload, and the file for its result; empty to print it.
type workParams struct {
	work.Params
	jsonFile string
}

// parseParams parses the flags of a workload. RankArgs appends --seed; users do not give it, so the
// error does not name it.
func parseParams(wl *work.Workload, words []string) (p workParams, err error) {
	f := pflag.NewFlagSet(wl.Name, pflag.ContinueOnError)
	f.Usage = func() {} // the error below names the flags
	f.StringVar((*string)(&p.Class), "class", string(work.ClassT), "")
	f.IntVar(&p.Iterations, "iterations", 0, "")
	f.IntVar(&p.Bytes, "bytes", 0, "")
	f.DurationVar(&p.Compute, "compute", 0, "")
	f.StringVar(&p.jsonFile, "json", "", "")
	flags := "--class, --iterations, --bytes, --compute and --json"
	var sizes string
	if wl.Name == work.CollectiveName {
		flags += ", --operation, --sizes, --algorithms, --warmup, --time, --groups, --mif and --late"
		f.StringVar(&p.Collective.Operation, "operation", "", "")
		f.StringVar(&sizes, "sizes", "", "")
		f.StringSliceVar(&p.Collective.Algorithms, "algorithms", nil, "")
		f.IntVar(&p.Collective.Warmup, "warmup", 0, "")
		f.DurationVar(&p.Collective.Time, "time", 0, "")
		f.IntVar(&p.Collective.Groups, "groups", 0, "")
		f.IntVar(&p.Collective.MIF, "mif", 0, "")
		f.IntVar(&p.Collective.Late, "late", 0, "")
	}
	f.Uint64Var(&p.Seed, "seed", 0, "")
	if err = f.Parse(words); err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err == nil && sizes != "" {
		p.Collective.Sizes, err = perf.ParseSizes(sizes)
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w: its flags are %s", wl.Name, err, flags)
	}
	return p, nil
}

// WorkloadMain runs a built-in workload as a rank, or as all ranks of a simulation. args are
// those after WorkloadCommand in the command line of RankArgs.
func WorkloadMain(args []string) error {
	wl, err := work.Find(args[0])
	if err != nil {
		return err
	}
	p, err := parseParams(wl, args[1:])
	if err != nil {
		return err
	}
	mpi.Main(func(w *mpi.World) error { return runWork(wl, w, p) })
	return nil
}

// runWork runs a workload as a rank. Rank 0 prints the result, or writes it to a file.
func runWork(wl *work.Workload, w *mpi.World, p workParams) error {
	r, err := wl.Run(w, p.Params)
	if err != nil || w.Rank() > 0 {
		return err
	}
	if p.jsonFile != "" {
		return cli.WriteFile(p.jsonFile, func(w io.Writer) error { return json.NewEncoder(w).Encode(&r) })
	}
	fmt.Printf("%s, class %s, %s: %s in %s, waited %s; %s of %s\n",
		r.Workload, r.Class, cli.Plural(r.Ranks, "rank"), cli.Plural(r.Iterations, "iteration"), cli.Duration(r.Time), cli.Duration(r.Waited),
		cli.Plural(int(r.Checks), "check"), cli.Bytes(r.Verified))
	if len(r.Collectives) > 0 {
		return writeCollectives(os.Stdout, r.Collectives)
	}
	for _, f := range r.Figures {
		fmt.Println(strings.TrimRight(fmt.Sprintf("  %v", f), " "))
	}
	return nil
}

// writeCollectives prints the times of collective operations.
func writeCollectives(w io.Writer, all []work.CollectiveTime) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	hasRate := all[0].Rate > 0
	fmt.Fprint(t, "operation\talgorithm\tbytes\tmean, all ranks\tmedian, all ranks\tmedian, slowest rank\t95 % of such medians\t")
	if hasRate {
		fmt.Fprint(t, "a second, all groups\t")
	}
	fmt.Fprintln(t)
	for i := range all {
		c := &all[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s to %s\t", c.Operation, c.Algorithm, c.Bytes,
			cli.Duration(c.Mean), cli.Duration(c.Median), cli.Duration(c.Slowest), cli.Duration(c.Low), cli.Duration(c.High))
		if hasRate {
			fmt.Fprintf(t, "%.0f\t", c.Rate)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
