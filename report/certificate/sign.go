package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// namespace keeps signatures of certificates from being taken for others of the same
// key.
const namespace = "fabrictest-certificate"

// Sign signs the manifest of a folder with an SSH key: a private one, or a public one
// whose private half an SSH agent has.
func Sign(ctx context.Context, dir, key string) error {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return errors.New("signing needs ssh-keygen, which is not on PATH: install OpenSSH (Debian: apt install openssh-client)")
	}
	file := filepath.Join(dir, ManifestFile)
	if err := os.Remove(file + ".sig"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // ssh-keygen would ask whether to replace it
	}
	_, err := run(exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", namespace, file))
	return err
}

// checkSignature has ssh-keygen check who signed a folder's manifest. signers is a
// file of allowed signers, as ssh-keygen(1) describes it.
func checkSignature(ctx context.Context, dir, signers string) (who string, err error) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return "", errors.New("checking a signature needs ssh-keygen, which is not on PATH: install OpenSSH (Debian: apt install openssh-client)")
	}
	sig := filepath.Join(dir, SignatureFile)
	if _, err := os.Stat(sig); err != nil {
		return "", errors.New("it is not signed")
	}
	out, err := run(exec.CommandContext(ctx, "ssh-keygen", "-Y", "find-principals", "-s", sig, "-f", signers))
	if err != nil {
		return "", fmt.Errorf("signed by nobody whom %s allows: %w", signers, err)
	}
	who, _, _ = strings.Cut(strings.TrimSpace(out), "\n")
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "verify", "-q", "-f", signers, "-I", who, "-n", namespace, "-s", sig)
	cmd.Stdin = bytes.NewReader(text)
	if _, err := run(cmd); err != nil {
		return "", fmt.Errorf("the signature of %s does not fit: %w", who, err)
	}
	return who, nil
}

func run(cmd *exec.Cmd) (string, error) {
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), nil
}
