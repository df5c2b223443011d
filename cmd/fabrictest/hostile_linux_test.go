package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report/certificate"
	"github.com/fabrictest/fabrictest/report/conform"
)

// escapes are sequences that clear a screen, set a title, make the terminal send input, and hide
// or reverse text, with 7-bit and 8-bit control characters.
const escapes = "\x1b[2J\x1b]0;t\x07\x1b[6n\u009b31m\x7f\x00\r\u202eevil\u2066\xff\x9b2J\b\b\b"

// hostileFolder returns the folder of a valid certificate with escapes in every text.
func hostileFolder(t *testing.T, verdict conform.Verdict) string {
	return certifiedFolder(t, func(run *conform.Run, s *certificate.Subject) {
		run.Devices[0].Results[0].Ladder = &conform.Ladder{Steps: []conform.Step{{Kind: "note", Text: "n"}}}
		testutil.AppendToStrings(run, escapes+"\nforged line")
		testutil.AppendToStrings(s, escapes+"\nforged line")
		run.Devices[0].Results[0].Verdict, run.Devices[0].Results[0].Capture = verdict, ""
		run.Devices[0].Defects = nil
		run.Documents[0].Sections[0].Rows[0].Level = "MUST"
	})
}

// hasControls reports whether a text has characters that control a terminal.
func hasControls(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf)
	})
}

// checkNoControls fails if a control character is in the output of a command.
func checkNoControls(t *testing.T, what string, outputs ...string) {
	t.Helper()
	for _, out := range outputs {
		if hasControls(out) {
			t.Errorf("%s: control characters are printed: %q", what, out)
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "forged line") {
				t.Errorf("%s: text of the file begins a line: %q", what, out)
			}
		}
	}
}

func TestPrintedCertificatesHaveNoControlCharacters(t *testing.T) {
	good := certifiedFolder(t, nil)
	for _, v := range conform.Verdicts() {
		bad := hostileFolder(t, v)
		code, out, stderr := call(t, "certify", "verify", bad)
		if code != exitOK || !strings.Contains(strings.SplitN(out, "\n", 2)[0], "unsigned") || !strings.Contains(out, `rxe0\x1b[2J`) {
			t.Errorf("verify: exit code %d, %q, %q", code, out, stderr)
		}
		checkNoControls(t, "verify", out, stderr)
		for _, args := range [][]string{{bad, good}, {bad, bad, "--all"}} {
			code, out, stderr = call(t, append([]string{"certify", "compare"}, args...)...)
			if code != exitOK {
				t.Errorf("compare: exit code %d, %q", code, stderr)
			}
			checkNoControls(t, "compare", out, stderr)
		}
		// Its output files are read in terminals too.
		file := filepath.Join(t.TempDir(), "matrix")
		code, out, stderr = call(t, "certify", "compare", bad, good, "--all", "--markdown", file+".md", "--html", file+".html")
		if code != exitOK {
			t.Errorf("compare: exit code %d, %q, %q", code, out, stderr)
		}
		for _, ext := range []string{".md", ".html"} {
			text, err := os.ReadFile(file + ext)
			if err != nil || hasControls(string(text)) {
				t.Errorf("control characters in %s, or %v", ext, err)
			}
		}
	}
}

func TestPrintedErrorsHaveNoControlCharacters(t *testing.T) {
	change := func(name string, f func(text string) string) string {
		dir := hostileFolder(t, conform.Pass)
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(f(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	named := func(name string) string {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(escapes), 0o600))
		return filepath.Join(dir, name)
	}
	results := filepath.Dir(named(conform.ResultFile))
	added := hostileFolder(t, conform.Pass)
	must.Do(t, os.WriteFile(filepath.Join(added, "x\x1b[2J"), nil, 0o600))
	file := named("evil\x1b[2J.yaml")
	for what, args := range map[string][]string{
		"changed certificate": {"certify", "verify", change(certificate.File, func(s string) string { return strings.Replace(s, `"pass"`, `"fail"`, 1) })},
		"unknown key":         {"certify", "verify", change(certificate.File, func(s string) string { return strings.Replace(s, `"outcome"`, `"\u001b[2J`+"\u009b"+`"`, 1) })},
		"unknown verdict":     {"certify", "verify", change(certificate.File, func(s string) string { return strings.Replace(s, `"pass"`, `"\u009b\u001b"`, 1) })},
		"no JSON":             {"certify", "compare", change(certificate.File, func(string) string { return escapes })},
		"manifest":            {"certify", "verify", change(certificate.ManifestFile, func(s string) string { return s + strings.Repeat("0", 64) + "  " + escapes + "\n" })},
		"added file":          {"certify", "verify", added},
		"signers":             {"certify", "verify", change(certificate.File, func(s string) string { return s }), "--signers", file},
		"compared results":    {"certify", "compare", results},
		"scenario":            {"run", file},
		"listed scenario":     {"list", "scenarios", file},
		"deviations":          {"conform", "rc/psn", "--device", "softroce", "--deviations", file},
		"capture":             {"capture", "show", file},
		"result":              {"replay", file},
		"key":                 {"agent", "--key", file, "--listen", "127.0.0.1:0", "--emulate", "softiwarp", "--interface", "lo"},
		"flag":                {"run", "--tag", escapes},
		"command":             {escapes},
	} {
		t.Run(what, func(t *testing.T) {
			code, out, stderr := call(t, args...)
			if code == exitOK {
				t.Errorf("it passed: %q", out)
			}
			checkNoControls(t, what, out, stderr)
		})
	}
}
