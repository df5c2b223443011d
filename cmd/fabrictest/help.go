package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report"
)

// helpTexts has a file for each command that explains more than its flags, named by the
// words of the command: lab-up.txt is the help of `fabrictest lab up`. The examples follow
// a line of their own.
//
//go:embed help/*.txt
var helpTexts embed.FS

const examplesLine = "Examples:\n"

// setHelp gives a command and its subcommands their help texts.
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
