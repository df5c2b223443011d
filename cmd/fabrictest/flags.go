package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Flags that several commands have.

// choiceFlag adds a flag with a fixed set of values, and their completion.
func choiceFlag(cmd *cobra.Command, p *string, name, value, usage string, choices ...string) {
	cmd.Flags().StringVar(p, name, value, usage)
	completeFlag(cmd, name, fixed(choices...))
}

func completeFlag(cmd *cobra.Command, name string, complete completer) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // there is no such flag, or it has a completion
	}
}

func jsonFlag(cmd *cobra.Command, p *bool, usage string) {
	cmd.Flags().BoolVar(p, "json", false, usage)
}

const printsJSON = "print JSON"

// listing is the output of a command with --json.
type listing struct {
	value  any                   // printed as JSON with --json
	write  func(io.Writer) error // prints the value without --json
	failed bool                  // the command exits with exitFailed
}

// withJSON adds the flag --json to cmd, and prints the listing that run returns as text or JSON.
// The command fails after that if the listing says so.
func withJSON(cmd *cobra.Command, usage string, run func(cmd *cobra.Command, args []string) (listing, error)) *cobra.Command {
	asJSON := false
	jsonFlag(cmd, &asJSON, usage)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := run(cmd, args)
		switch {
		case err != nil:
			return err
		case asJSON:
			err = printJSON(cmd.OutOrStdout(), l.value)
		default:
			err = l.write(cmd.OutOrStdout())
		}
		if err == nil && l.failed {
			err = errFailed
		}
		return err
	}
	return cmd
}

func outFlag(cmd *cobra.Command, p *string) {
	cmd.Flags().StringVar(p, "out", "", "`FOLDER` for results, to be made (default: in the user's cache)")
}

// seedFlag adds --seed with a default value. Its help has a clause such as "happens" in "decides
// all that happens by chance", and ends with suffix.
func seedFlag(cmd *cobra.Command, p *string, value, clause, suffix string) {
	cmd.Flags().StringVar(p, "seed", value, "`N` decides all that "+clause+" by chance; \"random\" draws one"+suffix)
}

// tierFlag adds --on for a command that runs on one tier.
func tierFlag(cmd *cobra.Command, p *string) {
	choiceFlag(cmd, p, "on", string(scenarios.Sim), "`TIER` to run on: sim or netns", string(scenarios.Sim), string(scenarios.NetNS))
}

// deviceFlag adds --device for emulated devices; verb is what the command does with them.
func deviceFlag(cmd *cobra.Command, p *[]string, verb string, names []string) {
	cmd.Flags().StringSliceVar(p, "device", nil, "the `DEVICE` to "+verb+": "+cli.Choices(names)+"; may be repeated (default: all)")
	completeFlag(cmd, "device", fixed(names...))
}

// defectFlag adds --defect; target is what gets the defects.
func defectFlag(cmd *cobra.Command, p *[]string, target string) {
	cmd.Flags().StringArrayVar(p, "defect", nil, "give "+target+" the defect `NAME` (see 'fabrictest list defects'); may be repeated")
	completeFlag(cmd, "defect", completeDefects)
}

// cableFlag adds --cable.
func cableFlag(cmd *cobra.Command, p *scenarios.CableKind) {
	cmd.Flags().Var(p, "cable", "hosts in real time are connected by `KIND`: veth, or shm (shared memory, without namespaces)")
	completeFlag(cmd, "cable", fixed(string(scenarios.VethPair), string(scenarios.SharedMemory)))
}

func profileFlag(cmd *cobra.Command, p *string) {
	choiceFlag(cmd, p, "as", "", "have the device behave like `PROFILE`: "+cli.Choices(nics.ProfileNames()), nics.ProfileNames()...)
}

// providerFlag adds --provider with a default value. Its help begins with prefix and ends with
// suffix.
func providerFlag(cmd *cobra.Command, p *string, value, prefix, suffix string) {
	choiceFlag(cmd, p, "provider", value, prefix+" `NAME`: "+cli.Choices(nics.Names())+suffix, nics.Names()...)
}

func levelFlag(cmd *cobra.Command, p *string) {
	choiceFlag(cmd, p, "level", "", "only requirements of this `LEVEL` or stronger: must, should or may", "must", "should", "may")
}

func labelFlag(cmd *cobra.Command, p *[]string) {
	cmd.Flags().StringSliceVar(p, "label", nil, "only cases with this `LABEL`; may be repeated")
	completeFlag(cmd, "label", completeLabels)
}

func withoutFlag(cmd *cobra.Command, p *[]string, example string) {
	cmd.Flags().StringSliceVar(p, "without", nil, "no cases with this `LABEL`"+example+"; may be repeated")
	completeFlag(cmd, "without", completeLabels)
}

func tagFlag(cmd *cobra.Command, p *[]string) {
	cmd.Flags().StringSliceVar(p, "tag", nil, "only scenarios with this `TAG`; may be repeated")
	completeFlag(cmd, "tag", completeTags)
}

// captureFlag adds --capture; the text byDefault tells the default if *p is empty.
func captureFlag(cmd *cobra.Command, p *cli.Captures, byDefault string) {
	cmd.Flags().Var(p, "capture", "whose packets to keep: failing, all or none"+byDefault)
	completeFlag(cmd, "capture", fixed(string(cli.CaptureFailing), string(cli.CaptureAll), string(cli.CaptureNone)))
}

// labFlag adds --lab, the name of a fabric that is up or is to be brought up.
func labFlag(cmd *cobra.Command, p *string) {
	cmd.Flags().StringVar(p, "lab", live.DefaultName, "the lab called `LAB`")
	completeFlag(cmd, "lab", completeLabs)
}

// noSuchCommand returns an error for an argument of a command that has only subcommands.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return cli.Errorf("unknown command %q%s", args[0], cli.Guess(args[0], known))
}

// newParentCommand makes a command that has only subcommands; without one it prints its help.
func newParentCommand(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// suggestFlags adds similar flags to the error about an unknown flag.
func suggestFlags(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	word := unknown.GetSpecifiedName()
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return cli.Errorf("unknown flag --%s%s", word, cli.Guess("--"+word, known))
}

// atLeast requires at least n arguments. Its error message is advice.
func atLeast(n int, advice string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return cli.Errorf("%s", advice)
		}
		return nil
	}
}

// helpTexts has a file for each command that explains more than its flags, named by the
// words of the command: lab-up.txt is the help of `fabrictest lab up`. The examples follow
// a line of their own.
//
//go:embed help/*.txt
var helpTexts embed.FS

const examplesLine = "Examples:\n"

// setHelp gives a command and its subcommands their help texts, from help/COMMAND-SUBCOMMAND.txt,
// and fills in variables such as {workloads}.
func setHelp(cmd *cobra.Command) {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if cmd.HasParent() {
		name = strings.TrimPrefix(name, cmd.Root().Name()+"-")
	}
	if text, err := helpTexts.ReadFile("help/" + name + ".txt"); err == nil {
		long, examples, _ := strings.Cut(string(text), examplesLine)
		cmd.Long, cmd.Example = helpVariables.Replace(strings.TrimSpace(long)), strings.TrimRight(examples, "\n")
	}
	for _, sub := range cmd.Commands() {
		setHelp(sub)
	}
}

// helpVariables are the parts of help texts that the program knows.
var helpVariables = strings.NewReplacer("{runs kept}", fmt.Sprint(report.RunsKept), "{workloads}", workloadTable())

// workloadTable lists the built-in workloads of mpirun.
func workloadTable() string {
	var b strings.Builder
	for _, wl := range work.All() {
		fmt.Fprintf(&b, "  %-12s %s\n", wl.Name, wl.Title)
	}
	return strings.TrimRight(b.String(), "\n")
}
