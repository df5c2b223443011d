package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

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
	return cmdline.Errorf("unknown command %q%s", args[0], cmdline.Guess(args[0], known))
}

// newParentCommand makes a command that has only subcommands, and prints its help.
func newParentCommand(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// flagMistake adds similar flags to the error about an unknown one.
func flagMistake(cmd *cobra.Command, err error) error {
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
	return cmdline.Errorf("unknown flag --%s%s", word, cmdline.Guess("--"+word, known))
}

// atLeast is cobra.MinimumNArgs with another message.
func atLeast(n int, complaint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return cmdline.Errorf("%s", complaint)
		}
		return nil
	}
}
