package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// newListScenariosCommand returns the command 'fabrictest list scenarios'.
func newListScenariosCommand() *cobra.Command {
	var sel scenarios.Selection
	var provider string
	var asJSON, schema bool
	cmd := &cobra.Command{
		Use:   "scenarios [SCENARIO...]",
		Short: "List the scenarios",
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(scenarios.Schema())
				return err
			}
			sel.Patterns = args
			if len(args) == 0 && len(sel.Tags) == 0 {
				sel.Patterns = []string{"*"}
			}
			chosen, err := sel.Find()
			if err != nil {
				return err
			}
			if provider != "" {
				if _, err := nics.Find(provider); err != nil {
					return cli.Errorf("--provider: %w", err)
				}
				for i := range chosen {
					chosen[i].Scenario = lab.WithProvider(chosen[i].Scenario, provider)
				}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), lab.ListScenarios(chosen))
			}
			return lab.WriteScenarios(cmd.OutOrStdout(), chosen)
		},
		ValidArgsFunction: completeScenarios,
	}
	tagFlag(cmd, &sel.Tags)
	providerFlag(cmd, &provider, "", "with the NICs of", "")
	jsonFlag(cmd, &asJSON, printsJSON)
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of scenario files")
	return cmd
}

// newListDefectsCommand returns the command `fabrictest list defects`, which lists the
// values of --defect.
func newListDefectsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "defects", Short: "List the defects that a NIC can be given", Args: cobra.NoArgs}
	return withJSON(cmd, printsJSON, func(*cobra.Command, []string) (listing, error) {
		return listing{value: nics.AllDefects(), write: nics.WriteDefects}, nil
	})
}

// newListPlatformsCommand returns the command `fabrictest list platforms`, which lists the values of
// --platform, or the rows of one.
func newListPlatformsCommand() *cobra.Command {
	schema := false
	cmd := &cobra.Command{
		Use: "platforms [PLATFORM]", Short: "List the platforms whose time a simulation can take, or the costs of one",
		Args: cobra.MaximumNArgs(1), ValidArgs: nics.PlatformNames(),
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of platform files")
	return withJSON(cmd, printsJSON, func(_ *cobra.Command, args []string) (listing, error) {
		if schema {
			return listing{value: json.RawMessage(nics.PlatformSchema()), write: func(w io.Writer) error {
				_, err := w.Write(nics.PlatformSchema())
				return err
			}}, nil
		}
		if len(args) == 0 {
			all, err := nics.ListPlatforms()
			return listing{value: all, write: func(w io.Writer) error { return nics.WritePlatforms(w, all) }}, err
		}
		p, err := nics.LoadPlatform(args[0])
		if err != nil {
			return listing{}, err
		}
		rows := p.Rows()
		return listing{value: rows, write: rows.Write}, nil
	})
}

// newListCasesCommand returns the command 'fabrictest list cases'.
func newListCasesCommand() *cobra.Command {
	choice := conformance.Filter{IncludeDangerous: true}
	cmd := &cobra.Command{
		Use: "cases [CASE...]", Short: "List the cases, and what each checks",
		ValidArgsFunction: completeCases,
	}
	labelFlag(cmd, &choice.Labels)
	withoutFlag(cmd, &choice.ExcludeLabels, "")
	return withJSON(cmd, printsJSON, func(_ *cobra.Command, args []string) (listing, error) {
		choice.IDs = args
		found, err := judge.FindCases(&choice)
		if err != nil {
			return listing{}, err
		}
		return listing{
			value: runner.Catalog().ListCases(found),
			write: func(w io.Writer) error { return judge.WriteCases(w, found) },
		}, nil
	})
}

// newConformShowCommand returns the command 'fabrictest conform show'.
func newConformShowCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "show CASE...",
		Short: "Show what cases check, send and expect, and which defects they detect",
		Args:  atLeast(1, "name a case: 'fabrictest list cases' lists all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := judge.FindCases(&conformance.Filter{IDs: args, IncludeDangerous: true})
			if err != nil {
				return err
			}
			return runner.Catalog().Describe(cmd.OutOrStdout(), found, program)
		},
		ValidArgsFunction: completeCases,
	}
}

// newConformCoverageCommand returns the command 'fabrictest conform coverage'.
func newConformCoverageCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "coverage [DOCUMENT...]",
		Short:             "Show how much of the specifications the cases cover",
		RunE:              func(cmd *cobra.Command, args []string) error { return judge.WriteCoverage(cmd.OutOrStdout(), args) },
		ValidArgsFunction: completeFrom(func(context.Context) ([]cobra.Completion, error) { return judge.DocumentKeys(), nil }),
	}
}

// newVersionCommand returns the command 'fabrictest version'.
func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go version it was built with",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine returns the versions of fabrictest and Go, and the platform.
func versionLine() string {
	return fmt.Sprintf("fabrictest %s %s %s/%s", report.ToolVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// newDoctorCommand returns the command 'fabrictest doctor'.
func newDoctorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "doctor", Short: "Print what this machine supports, and how to get the rest", Args: cobra.NoArgs}
	return withJSON(cmd, printsJSON, func(*cobra.Command, []string) (listing, error) {
		found := slices.Concat(netns.Probe(), kernel.Capabilities(), lab.ProgramCapabilities())
		return listing{
			value: found,
			write: func(w io.Writer) error {
				colour := terminalOf(w) != nil && os.Getenv("NO_COLOR") == ""
				return lab.WriteCapabilities(withoutEscapeFilter(w), found, colour)
			},
			failed: netns.Available() != nil,
		}, nil
	})
}
