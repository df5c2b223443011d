package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/internal/suggest"
)

// guess is the end of a complaint about an unknown word: what may have been meant.
func guess(word string, known []string) string {
	if words := suggest.Similar(word, known); len(words) > 0 {
		return "; did you mean " + strings.Join(words, ", ") + "?"
	}
	return ""
}

// didYouMean is guess and the command that lists all that is known.
func didYouMean(word string, known []string, list string) string {
	if g := guess(word, known); g != "" {
		return strings.TrimPrefix(g, "; ") + " '" + list + "' lists all"
	}
	return "'" + list + "' lists all"
}

// noSuchCommand refuses arguments of a command that has only subcommands.
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
	return usagef("unknown command %q%s", args[0], guess(args[0], known))
}

// flagMistake says what flag may have been meant.
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
	return usagef("unknown flag --%s%s", word, guess("--"+word, known))
}

// atLeast is cobra.MinimumNArgs with words of our own.
func atLeast(n int, complaint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return usagef("%s", complaint)
		}
		return nil
	}
}
