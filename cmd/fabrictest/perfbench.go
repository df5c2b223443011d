package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// perfBench is `fabrictest perf lat`, bw, rate or register.
type perfBench struct {
	perflab.Benchmark
	sizes, on, histogram string
	gigabits             bool
	device, listen       string
	end                  perflab.Endpoint
}

// newPerfBenchCommand returns the command of this kind of benchmark over verbs.
func newPerfBenchCommand(kind perf.Kind, short string) *cobra.Command {
	o := &perfBench{Benchmark: perflab.Benchmark{Benchmark: perf.Benchmark{Kind: kind}}}
	cmd := &cobra.Command{Use: string(kind) + " [SERVER]", Short: short, Args: cobra.MaximumNArgs(1)}
	f := cmd.Flags()
	f.StringVar(&o.sizes, "sizes", "", "`SIZES` of messages, such as 64,4K or 8..4M for powers of two")
	f.IntVar(&o.Iterations, "iterations", 0, "messages of each queue pair (default: as perftest, up to 64 MiB of data)")
	f.IntVar(&o.Warmup, "warmup", 0, "messages before those that are measured")
	f.IntVar(&o.Repeat, "repeat", 1, "measure so often: 'perf compare' needs five samples")
	choiceFlag(cmd, &o.on, "on", string(perflab.InSimulated), "`PLACE` of the hosts: "+cli.Choices(perflab.Places())+" (processes with a cable in shared memory)", perflab.Places()...)
	providerFlag(cmd, &o.Provider, "", "the NICs are those of", " (default: that of the platform, or "+nics.Default+")")
	f.StringVar(&o.Platform, "platform", "", "in simulation, hosts and NICs take the time of `NAME` (see list platforms), or of a YAML file")
	completeFlag(cmd, "platform", fixed(nics.PlatformNames()...))
	f.StringVar(&o.device, "device", "", "measure the libibverbs device `NAME`: with SERVER as client, else as server")
	f.StringVar(&o.listen, "listen", ":"+perflab.DefaultPort, "`ADDR:PORT` at which a server waits")
	f.Uint8Var(&o.end.Port, "port", 1, "port of --device")
	f.Uint8Var(&o.end.GIDIndex, "gid-index", 0, "index of the GID of --device")
	if kind != perf.Register {
		choiceFlag(cmd, &o.Verb, "verb", "send", "`VERB`: "+cli.Choices(perf.Verbs), perf.Verbs...)
		choiceFlag(cmd, &o.Transport, "transport", "", "`NAME`: rc, uc, ud, xrc, or rd of reliable datagrams (default: what the NICs have)", "rc", "uc", "ud", "xrc", "rd")
		f.BoolVar(&o.Events, "events", false, "sleep until a completion event, instead of polling")
		f.IntVar(&o.Inline, "inline", 0, "messages of up to so many `BYTES` are in the work request")
		f.BoolVar(&o.ICRCOffloaded, "no-icrc", false, "in real time, do not compute or check the ICRC of RoCE packets")
		f.IntVar(&o.Pairs, "pairs", 1, "in simulation, pairs of processes that measure at the same time")
	}
	switch kind {
	case perf.BW, perf.MsgRate:
		f.IntVar(&o.QPs, "qps", 1, "queue pairs of each process")
		f.IntVar(&o.Depth, "depth", 0, "messages in flight on each queue pair (default: 128)")
		f.IntVar(&o.PostList, "post-list", 0, "messages that are posted in one call (default: 1; for rates a quarter of the depth)")
		f.IntVar(&o.Moderation, "cq-mod", 0, "messages for each signaled completion (default: 100; for rates a quarter of the depth)")
		f.IntVar(&o.Buffer, "buffer", 0, "`BYTES` of memory whose parts messages use in turn (default: 1 MiB)")
		f.BoolVar(&o.BothWays, "both-ways", false, "send in both directions")
		f.BoolVar(&o.gigabits, "report-gbits", false, "print Gb/s instead of MiB/s")
	case perf.Lat:
		f.StringVar(&o.histogram, "histogram", "", "`FILE` for the distribution of the times, in HdrHistogram's format")
	case perf.Register:
	}
	return withJSON(cmd, "print a recorded run, for 'perf compare'", o.run)
}

// run runs the benchmark on simulated or emulated devices, or with --device on a libibverbs device,
// as client or server. A server has no report.
func (o *perfBench) run(cmd *cobra.Command, args []string) (l listing, err error) {
	o.On = perflab.Place(o.on)
	if o.sizes != "" {
		if o.Sizes, err = perf.ParseSizes(o.sizes); err != nil {
			return l, err
		}
	}
	progress := newProgressLine(cmd.ErrOrStderr())
	o.Progress = progress.Report
	var r *perf.Report
	switch {
	case o.device != "":
		r, err = o.runOnDevice(cmd, args)
	case len(args) > 0:
		return l, cli.Errorf("%s: a server has a libibverbs device: name the one of this host with --device", args[0])
	default:
		r, err = o.Run(cmd.Context())
	}
	progress.Clear()
	if err != nil || r == nil {
		return listing{write: func(io.Writer) error { return nil }}, err
	}
	r.Gigabits = o.gigabits
	return listing{value: &r.Run, write: r.WriteTable}, writeFile(o.histogram, r.WriteHistogram)
}

// runOnDevice runs a client of the server args[0], or a server that has no result.
func (o *perfBench) runOnDevice(cmd *cobra.Command, args []string) (r *perf.Report, err error) {
	if o.end.Device, err = (ibv.Provider{}).Open(o.device); err != nil {
		return nil, err
	}
	defer o.end.Device.Close()
	if len(args) > 0 {
		return o.end.Run(cmd.Context(), &o.Benchmark, args[0])
	}
	return nil, o.end.ListenAndServe(cmd.Context(), o.listen)
}
