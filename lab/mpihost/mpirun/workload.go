package mpirun

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// WorkloadCommand is the first argument of a process that runs a built-in workload. Its
// program must call WorkloadMain.
const WorkloadCommand = "mpi-rank"

// RankArgs returns the command line of a rank. words are a workload or program and its
// arguments. If the first has no slash and is a built-in workload, the command is this program
// with WorkloadCommand; else the program of that name.
func RankArgs(words []string, ranks int, seed uint64) ([]string, error) {
	name, isPath := words[0], strings.ContainsRune(words[0], '/')
	wl, notFound := work.Find(name)
	if !isPath && notFound == nil {
		p, err := parseParams(wl, words[1:])
		if err == nil {
			err = wl.Check(ranks, p)
		}
		if err != nil {
			return nil, &cmdline.Error{Err: err}
		}
		self, err := os.Executable()
		all := append([]string{self, WorkloadCommand}, words...)
		return append(all, "--seed", strconv.FormatUint(seed, 10)), err
	}
	path, err := exec.LookPath(name)
	switch {
	case err != nil && isPath:
		return nil, &cmdline.Error{Err: err}
	case err != nil:
		return nil, cmdline.Errorf("there is no program %s, and %w", name, notFound)
	}
	return append([]string{path}, words[1:]...), nil
}

// parseParams parses the flags of a workload.
func parseParams(wl *work.Workload, words []string) (p work.Params, err error) {
	f := pflag.NewFlagSet(wl.Name, pflag.ContinueOnError)
	f.Usage = func() {}
	f.StringVar((*string)(&p.Class), "class", string(work.ClassT), "")
	f.IntVar(&p.Iterations, "iterations", 0, "")
	f.IntVar(&p.Bytes, "bytes", 0, "")
	f.DurationVar(&p.Compute, "compute", 0, "")
	f.Uint64Var(&p.Seed, "seed", 0, "")
	if err = f.Parse(words); err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w: its flags are --class, --iterations, --bytes and --compute", wl.Name, err)
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

// runWork runs a workload as a rank. Rank 0 prints the result.
func runWork(wl *work.Workload, w *mpi.World, p work.Params) error {
	r, err := wl.Run(w, p)
	if err != nil || w.Rank() > 0 {
		return err
	}
	fmt.Printf("%s, class %s, %s: %s in %s, waited %s; %s of %s\n",
		r.Workload, r.Class, textfmt.Plural(r.Ranks, "rank"), textfmt.Plural(r.Iterations, "iteration"), textfmt.Duration(r.Time), textfmt.Duration(r.Waited),
		textfmt.Plural(int(r.Checks), "check"), textfmt.Bytes(r.Verified))
	for _, f := range r.Figures {
		fmt.Println(strings.TrimRight(fmt.Sprintf("  %v", f), " "))
	}
	return nil
}
