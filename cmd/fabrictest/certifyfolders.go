package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/report/certificate"
)

// newCertifyVerifyCommand returns the command 'fabrictest certify verify'.
func newCertifyVerifyCommand() *cobra.Command {
	var signers string
	cmd := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Check that a certificate is complete and matches its results, and who signed it",
		Args:  cobra.MatchAll(atLeast(1, "name the folder of a certificate"), cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := certificate.Verify(cmd.Context(), args[0], signers)
			switch {
			case err != nil && !v.Signed:
				return fmt.Errorf("%s does not hold, and is unsigned: %w", args[0], err)
			case err != nil:
				return fmt.Errorf("%s does not hold: %w", args[0], err)
			}
			return v.Write(cmd.OutOrStdout(), args[0])
		},
	}
	cmd.Flags().StringVar(&signers, "signers", "", "`FILE` of who may sign, as ssh-keygen(1) describes allowed signers")
	return cmd
}

// newCertifyCompareCommand returns the command 'fabrictest certify compare'.
func newCertifyCompareCommand() *cobra.Command {
	var markdown, asJSON, html string
	var all bool
	cmd := &cobra.Command{
		Use:   "compare FOLDER...",
		Short: "Compare the results of several devices, clause by clause",
		Args:  atLeast(1, "name the folders of what to compare"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := certificate.Compare(args)
			if err != nil {
				return err
			}
			if markdown == "" && asJSON == "" && html == "" {
				return c.WriteMarkdown(cmd.OutOrStdout(), all)
			}
			return errors.Join(
				writeFile(markdown, func(w io.Writer) error { return c.WriteMarkdown(w, all) }),
				writeFile(asJSON, c.WriteJSON),
				writeFile(html, func(w io.Writer) error { return c.WriteHTML(w, filepath.Dir(html)) }))
		},
	}
	f := cmd.Flags()
	f.StringVar(&markdown, "markdown", "", "`FILE` for Markdown")
	f.StringVar(&asJSON, "json", "", "`FILE` for JSON")
	f.StringVar(&html, "html", "", "`FILE` for a page")
	f.BoolVar(&all, "all", false, "in Markdown, list all clauses, and not only those in which the devices differ")
	return cmd
}

// writeFile writes a file, if one is named.
func writeFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
