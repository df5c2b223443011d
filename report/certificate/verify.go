package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/conform"
)

// Verified is the result of [Verify].
type Verified struct {
	*Certificate
	Files  int    // number of files in the manifest
	Signed bool   // there is a signature
	Signer string // signer; empty without an allowed signers file
	Key    string // key of the signature, without an allowed signers file
}

// Write writes what was verified about the certificate in a folder, on two lines.
func (v *Verified) Write(w io.Writer, folder string) error {
	line := cli.PrintableLine
	_, err := fmt.Fprintf(w, "%s holds: %d files, %s.\n%s (%s, kernel %s): %s: %s\n", line(folder), v.Files, v.signature(),
		line(v.Subject.Device), line(v.Subject.Driver), line(v.Subject.Kernel), line(string(v.Outcome)), line(v.Why))
	return err
}

// signature describes the signature.
func (v *Verified) signature() string {
	switch {
	case v.Signer != "":
		return "signed by " + cli.PrintableLine(v.Signer)
	case v.Signed:
		return "signed " + cli.PrintableLine(v.Key) + "; --signers FILE checks whose it is"
	}
	return "unsigned: it does not show who wrote it"
}

// Verify checks the certificate in a folder: that no file was changed, added or removed after the
// manifest was written, that the states and the outcome follow from the results, that the pages
// match, and that every verdict has its capture. If signers is not empty, it is an allowed signers
// file of ssh-keygen(1), and a signer in it must have signed the certificate; otherwise a
// signature, if there is one, must be valid. With an error, only Signed of the result is valid.
func Verify(ctx context.Context, dir, signers string) (*Verified, error) {
	v := &Verified{Signed: isSigned(dir)}
	c, err := Read(dir)
	if err != nil {
		return v, err
	}
	v.Certificate = c
	const maxManifest = maxFiles * 4096 // 4096 bytes for each line: a hash and a path
	text, err := cli.ReadFile(filepath.Join(dir, ManifestFile), maxManifest)
	if err != nil {
		return v, err
	}
	have, err := hashes(dir)
	if err != nil {
		return v, err
	}
	var manifestErr, signatureErr error
	v.Files, manifestErr = checkManifest(text, have)
	switch {
	case signers != "":
		v.Signer, signatureErr = checkSigner(ctx, dir, signers, text)
	case v.Signed:
		v.Key, signatureErr = checkSignature(ctx, dir, text)
	}
	return v, errors.Join(manifestErr, c.checkStates(), c.checkPages(dir), c.checkCaptures(dir), c.checkFiles(have), signatureErr)
}

// checkPages generates the pages again, and returns an error for those that differ in dir.
func (c *Certificate) checkPages(dir string) error {
	var errs []error
	for _, p := range c.pages() {
		var want bytes.Buffer
		if err := p.Write(&want); err != nil {
			errs = append(errs, err)
			continue
		}
		// A longer file is an ErrTooLong.
		got, err := cli.ReadFile(filepath.Join(dir, p.Name), int64(want.Len()))
		switch {
		case errors.Is(err, cli.ErrTooLong), err == nil && !bytes.Equal(got, want.Bytes()):
			errs = append(errs, fmt.Errorf("%s does not match %s: it was changed, or written by another version of fabrictest "+
				"(the certificate is of %q, and only that version can check it)", p.Name, File, c.Run.Tool))
		case err != nil:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// consoleFile matches console logs of guests.
var consoleFile = regexp.MustCompile(`^guest[0-9]+\.console$`)

// checkFiles returns an error for each file that is neither the certificate, a page, a capture of a
// result, nor the console log of a guest. have has the hashes of the files by path.
func (c *Certificate) checkFiles(have map[string]string) error {
	known := map[string]bool{File: true}
	for _, p := range c.pages() {
		known[p.Name] = true
	}
	for i := range c.Run.Devices[0].Results {
		known[c.Run.Devices[0].Results[i].Capture] = true
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !known[name] && !consoleFile.MatchString(name) {
			errs = append(errs, fmt.Errorf("%s is no part of a certificate", name))
		}
	}
	return errors.Join(errs...)
}

// checkStates derives the states of the clauses and the outcome again from the results, and returns
// an error if they differ.
func (c *Certificate) checkStates() error {
	derived, err := New(&c.Run, c.Subject, c.Judge)
	switch {
	case err != nil:
		return err
	case derived.Outcome != c.Outcome || derived.Why != c.Why:
		return fmt.Errorf("the certificate has the outcome %q, but its results give %q: %s", c.Outcome, derived.Outcome, derived.Why)
	case !reflect.DeepEqual(derived.Counts, c.Counts):
		return errors.New("the counts of the certificate differ from those of its results")
	case len(derived.Clauses) != len(c.Clauses):
		return fmt.Errorf("the certificate lists %d clauses, but its results give %d", len(c.Clauses), len(derived.Clauses))
	}
	for i := range c.Clauses {
		if !reflect.DeepEqual(derived.Clauses[i], c.Clauses[i]) {
			return fmt.Errorf("the certificate has the state %q for %s, but its results give %q", c.Clauses[i].State, c.Clauses[i].Row, derived.Clauses[i].State)
		}
	}
	return nil
}

// checkCaptures checks that the capture of each result exists in dir, and that each supported case
// whose ladder diagram (r.Ladder) shows packets has a capture.
func (c *Certificate) checkCaptures(dir string) error {
	var errs []error
	for i := range c.Run.Devices[0].Results {
		r := &c.Run.Devices[0].Results[i]
		if r.Capture == "" {
			isPacket := func(s conform.Step) bool { return s.Kind == conform.Sent || s.Kind == conform.Received }
			if r.Verdict != conform.Unsupported && r.Ladder != nil && slices.ContainsFunc(r.Ladder.Steps, isPacket) {
				errs = append(errs, fmt.Errorf("no capture for the verdict of %s", r.ID))
			}
			continue
		}
		if !filepath.IsLocal(filepath.FromSlash(r.Capture)) {
			errs = append(errs, fmt.Errorf("the capture of %s is outside of the folder: %s", r.ID, r.Capture))
		} else if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(r.Capture))); err != nil {
			errs = append(errs, fmt.Errorf("the capture of %s: %w", r.ID, err))
		}
	}
	return errors.Join(errs...)
}

// namespace is the SSH signature namespace of certificates.
const namespace = "fabrictest-certificate"

// Sign signs the manifest of a folder with an SSH key: a private key file, or a public one
// whose private key an SSH agent has.
func Sign(ctx context.Context, dir, key string) error {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return errors.New("signing needs ssh-keygen, which is not on PATH: install OpenSSH (Debian: apt install openssh-client)")
	}
	file := filepath.Join(dir, ManifestFile)
	// ssh-keygen asks before it replaces a signature.
	if err := os.Remove(file + ".sig"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_, err := run(exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", namespace, file))
	return err
}

// isSigned reports whether a folder has a signature, valid or not.
func isSigned(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, SignatureFile))
	return err == nil
}

// checkSignature checks the signature of the manifest with ssh-keygen, but not whose key it is, and
// returns a description of the key. Without ssh-keygen it only returns a text that says so.
func checkSignature(ctx context.Context, dir string, manifest []byte) (key string, err error) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return "not checked: ssh-keygen is not on PATH", nil
	}
	sig := filepath.Join(dir, SignatureFile)
	if err := cli.CheckFile(sig); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "check-novalidate", "-n", namespace, "-s", sig)
	cmd.Stdin = bytes.NewReader(manifest)
	out, err := run(cmd)
	if err != nil {
		return "", fmt.Errorf("invalid signature: %w", err)
	}
	// The output is: Good "NAMESPACE" signature with TYPE key SHA256:HASH
	_, key, _ = strings.Cut(strings.TrimSpace(out), " with ")
	return "by " + key, nil
}

// checkSigner checks with ssh-keygen that a key in signers, an allowed signers file of
// ssh-keygen(1), made the signature of the manifest. It returns the signer's name in that file.
func checkSigner(ctx context.Context, dir, signers string, manifest []byte) (signer string, err error) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return "", errors.New("checking a signature needs ssh-keygen, which is not on PATH: install OpenSSH (Debian: apt install openssh-client)")
	}
	sig := filepath.Join(dir, SignatureFile)
	if !isSigned(dir) {
		return "", errors.New("the certificate is not signed")
	}
	for _, file := range []string{sig, signers} { // ssh-keygen would block on a pipe
		if err := cli.CheckFile(file); err != nil {
			return "", err
		}
	}
	out, err := run(exec.CommandContext(ctx, "ssh-keygen", "-Y", "find-principals", "-s", sig, "-f", signers))
	if err != nil {
		return "", fmt.Errorf("no signer in %s made the signature: %w", signers, err)
	}
	signer, _, _ = strings.Cut(strings.TrimSpace(out), "\n")
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "verify", "-q", "-f", signers, "-I", signer, "-n", namespace, "-s", sig)
	cmd.Stdin = bytes.NewReader(manifest)
	if _, err := run(cmd); err != nil {
		return "", fmt.Errorf("invalid signature of %s: %w", signer, err)
	}
	return signer, nil
}

// run runs a command and returns its standard output. An error contains the output of both streams.
func run(cmd *exec.Cmd) (string, error) {
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), nil
}

// CheckKey returns an error if certificates cannot be signed with a key, the value of --sign. Without
// a key they are not signed.
func CheckKey(key string) error {
	if key == "" {
		return nil
	}
	if err := cli.CheckFile(key); err != nil {
		return cli.Errorf("--sign: %w", err)
	}
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return cli.Errorf("--sign: %w; install OpenSSH (Debian: apt install openssh-client)", err)
	}
	return nil
}
