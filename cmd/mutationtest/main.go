// Command mutationtest changes packages mechanically, in one place at a time, and lists
// the changes that no conformance case notices.
//
// A change (a mutant) negates a condition, moves a comparison or a constant by one, drops
// a statement or swaps operands; see [mutant.Generate]. All mutants are in one build of
// this program. Worker processes select one at a time and run the cases that call the
// changed function on the emulated devices, in simulation, until a case does not pass.
//
//	go run ./cmd/mutationtest ./emu/softroce/cm
//	go run ./cmd/mutationtest -n 300 -seed 7 -tests ./emu/softroce/engine
//	go run ./cmd/mutationtest -file defects.txt
//	go run ./cmd/mutationtest -cases mpi ./mpi/p2p
//
// The folder survivors lists mutants that were looked at and that no case notices, with the reason.
// Those that no peer and no application can notice do not count. -run REGEXP selects
// mutants by what they do, for example those of one function.
//
// -netns REGEXP also runs the cases that it matches in network namespaces, which needs root: for code
// that no simulation calls. A mutant that makes cases or tests wait without end is killed, too.
//
//	go run ./cmd/mutationtest -netns "^verbs/(async|port)" ./emu/internal/device
//
// With -file, the mutants are those of a file, in the format of [mutant.Parse], instead of
// mechanical ones. With -tests, the package's tests run with each mutant that the cases did not
// notice. With -cases none, no case runs: only the tests judge, as they must where a package is
// part of the suite itself. -skip leaves out tests that take long.
//
//	go run ./cmd/mutationtest -cases none -tests ./emu/impair
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/mutant"
)

type options struct {
	file    string
	suite   string
	netns   string
	match   string
	skip    string
	n       int
	seed    uint64
	workers int
	tests   bool
	min     float64
	// Flags of child processes: the baseline file to write, or to read as a worker.
	baseline, worker string
}

// main parses the flags and runs the command. A process that this program starts itself has one of
// the internal flags.
func main() {
	var o options
	flag.StringVar(&o.file, "file", "", "judge the mutants of `FILE` instead of mechanical ones")
	flag.StringVar(&o.suite, "cases", suiteDevices, "the `cases`: devices (what conform runs), mpi (those of the MPI runtime), or none")
	flag.StringVar(&o.netns, "netns", "", "also run the cases in namespaces of which `REGEXP` matches the ID")
	flag.StringVar(&o.match, "run", "", "take only mutants of which `REGEXP` matches what they do (FUNCTION: CHANGE)")
	flag.StringVar(&o.skip, "skip", "", "do not run tests of which `REGEXP` matches the name")
	flag.IntVar(&o.n, "n", 0, "the `number` of mutants, drawn at random; 0 for all")
	flag.Uint64Var(&o.seed, "seed", 1, "the `seed` of the draw")
	flag.IntVar(&o.workers, "workers", 2, "the `number` of worker processes")
	flag.BoolVar(&o.tests, "tests", false, "run the package's tests with mutants that no case kills")
	flag.Float64Var(&o.min, "min", 0, "exit with 1 if the cases kill less than this `share` of the mutants")
	flag.StringVar(&o.baseline, "write-baseline", "", "internal")
	flag.StringVar(&o.worker, "worker", "", "internal")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: mutationtest [flags] PACKAGE...\n\nCount the mechanical changes of packages that conformance cases notice.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := o.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutationtest:", err)
		os.Exit(1)
	}
}

// run finds out which mutants of packages the conformance cases kill. In a child process it
// instead writes the baseline (the cases that pass without mutants), or serves as a worker, which
// runs the cases with mutants.
func (o *options) run(packages []string) error {
	switch {
	case o.baseline != "":
		f, err := os.Create(o.baseline)
		if err != nil {
			return err
		}
		return errors.Join(writeBaseline(f, o.selection()), f.Close())
	case o.worker != "":
		return serveMutants(o.worker, o.selection(), os.Stdin, os.Stdout)
	case !slices.Contains([]string{suiteDevices, suiteMPI, suiteNone}, o.suite):
		return fmt.Errorf("-cases %s: give %s, %s or %s", o.suite, suiteDevices, suiteMPI, suiteNone)
	case o.suite == suiteNone && !o.tests:
		return errors.New("-cases none needs -tests: nothing else would judge the mutants")
	case (len(packages) > 0) == (o.file != ""): // both, or neither
		return errors.New("name either packages, for example ./emu/softroce/cm, or a file of mutants")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "mutationtest-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return o.runMutants(ctx, dir, packages)
}

func (o *options) selection() selection { return selection{suite: o.suite, netns: o.netns} }

// runMutants runs the conformance cases, and if o.tests is set the packages' Go tests, with each
// mutant of the packages or of o.file, and prints which mutants survive. If o.n is not 0, it takes
// only o.n mutants, drawn at random. It builds programs in the temporary folder dir.
func (o *options) runMutants(ctx context.Context, dir string, packages []string) error {
	root, err := mutant.Root()
	if err != nil {
		return err
	}
	all, err := o.mutants(ctx, root, packages)
	if err != nil {
		return err
	}
	total := len(all)
	if o.n > 0 && o.n < len(all) {
		rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:o.n]
	}
	fmt.Fprintf(os.Stderr, "%d mutants; %d are built\n", total, len(all))
	valid, results, err := o.runCases(ctx, dir, all)
	if err != nil {
		return err
	}
	if o.tests {
		t := tester{root: root, dir: dir, skip: o.skip}
		if err := t.run(ctx, valid, results, o.workers); err != nil {
			return err
		}
	}
	reasons, err := survivorReasons()
	if err != nil {
		return err
	}
	return report(os.Stdout, reasons, valid, results, o.min)
}

// runCases builds the mutants into one program and runs the cases with each. It returns the mutants
// that compile, and their results. If o.suite is none, it runs no case, and builds the packages
// only to find the mutants that compile.
func (o *options) runCases(ctx context.Context, dir string, all []mutant.Mutant) (valid []mutant.Mutant, results []result, err error) {
	if o.suite == suiteNone {
		folders := byFolder(all)
		for _, folder := range slices.Sorted(maps.Keys(folders)) {
			_, compiling, err := o.build(ctx, dir, folder, folders[folder])
			if err != nil {
				return nil, nil, err
			}
			valid = append(valid, compiling...)
		}
		return valid, make([]result, len(valid)), nil
	}
	program, valid, err := o.build(ctx, dir, "cmd/mutationtest", all)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintln(os.Stderr, "running all cases without mutants")
	p := pool{program: program, cases: o.selection(), baseline: filepath.Join(dir, "baseline.json")}
	if out, err := exec.CommandContext(ctx, program, append(p.cases.flags(), "-write-baseline", p.baseline)...).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("run all cases without mutants: %w\n%s", err, out)
	}
	results, err = p.judge(ctx, valid, o.workers)
	return valid, results, err
}

// build builds a package with those of the mutants that compile. Mutants of o.file must compile.
func (o *options) build(ctx context.Context, dir, pkg string, all []mutant.Mutant) (program string, valid []mutant.Mutant, err error) {
	if o.file != "" {
		program, err = mutant.Build(ctx, dir, pkg, all)
		return program, all, err
	}
	program, valid, err = mutant.BuildValid(ctx, dir, pkg, all)
	fmt.Fprintf(os.Stderr, "%s: %d do not compile\n", pkg, len(all)-len(valid))
	return program, valid, err
}

// byFolder returns the mutants by the folder of the package that they change first. Some mutants
// also change others.
func byFolder(all []mutant.Mutant) map[string][]mutant.Mutant {
	folders := map[string][]mutant.Mutant{}
	for i := range all {
		folder := path.Dir(all[i].Hunks[0].File)
		folders[folder] = append(folders[folder], all[i])
	}
	return folders
}

// mutants returns the mutants of o.file. Without a file, it generates the mutants of packages, and
// returns those whose description o.match matches.
func (o *options) mutants(ctx context.Context, root string, packages []string) ([]mutant.Mutant, error) {
	if o.file == "" {
		files, err := sourceFiles(ctx, root, packages)
		if err != nil {
			return nil, err
		}
		wanted, err := regexp.Compile(o.match)
		if err != nil {
			return nil, err
		}
		all, err := mutant.Generate(root, files)
		return slices.DeleteFunc(all, func(m mutant.Mutant) bool { return !wanted.MatchString(m.Does) }), err
	}
	text, err := os.ReadFile(o.file)
	if err != nil {
		return nil, err
	}
	return mutant.Parse(o.file, string(text))
}

// sourceFiles returns the Go files of packages, relative to the root of the module.
func sourceFiles(ctx context.Context, root string, packages []string) (files []string, err error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"list", "-f", `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`}, packages...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for _, f := range strings.Fields(string(out)) {
		name, err := filepath.Rel(root, f)
		if err != nil {
			return nil, err
		}
		files = append(files, filepath.ToSlash(name))
	}
	slices.Sort(files)
	return files, nil
}
