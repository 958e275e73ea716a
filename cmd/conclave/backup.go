package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// backupCodes is for a program that makes backups: which exit code means that there is one.
const backupCodes = "After exit code 0 FILE has a confirmed backup; after 7 it has a complete one, of what the member had, that no quorum has confirmed; after any other code there is no new one to rely on."

func (p *program) backupCommand() *cobra.Command {
	var overwrite bool
	cmd := &cobra.Command{
		Use: "backup FILE", Args: exactly("FILE"), Short: "Write a backup of all groups to a file; - for standard output",
		Long: "Write a backup of the group, and of all further groups that programs have created, to a file, which exists only once it is complete and " +
			"durable, or is replaced only then; - writes to standard output. A backup has the keys with their values in clear. " + backupCodes + " Standard output may have a part then, which restore refuses.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.connected(cmd.Context(), func(c groupClient) error {
				if args[0] == "-" {
					return backupCode(c.Backup(cmd.Context(), p.stdout))
				}
				if info, err := os.Stat(args[0]); err == nil && !info.Mode().IsRegular() {
					return usagef("%q is not a regular file: choose another FILE, or - for standard output", args[0])
				}
				if _, err := os.Lstat(args[0]); err == nil && !overwrite {
					return usagef("%q exists: choose another FILE, or add --overwrite", args[0])
				}
				var stale error
				size, err := writeFile(args[0], func(w io.Writer) error {
					err := backupCode(c.Backup(cmd.Context(), w))
					if errors.Is(err, conclave.ErrUnavailable) {
						stale, err = err, nil
					}
					return err
				})
				if err != nil {
					return err
				}
				err = p.one(map[string]any{"file": args[0], "bytes": size}, func(w *tabwriter.Writer) { fmt.Fprintf(w, "%s: %d bytes\n", args[0], size) })
				if err != nil { // the exit code is that of the backup
					p.tell(printable(fmt.Sprintf("conclave: %s is written, and standard output failed: %v", args[0], err)))
				}
				return stale
			}, readOnly)
		},
	}
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace FILE if it exists")
	return cmd
}

// backupCode gives the errors of a backup exit codes of their own: what else ErrUnavailable means
// elsewhere has no effect, and here the backup is complete. After a signal the code is that of the signal.
func backupCode(err error) error {
	if errors.Is(err, conclave.ErrUnavailable) {
		return withCode(exitUnconfirmed, err)
	}
	return err
}

// writeFile makes a file that exists only once it is complete and durable.
func writeFile(path string, write func(w io.Writer) error) (size int64, err error) {
	// A name of its own: another backup may be written to the same file, and others may write to the directory.
	dir, base := filepath.Split(path)
	file, err := os.CreateTemp(cmp.Or(dir, "."), base+".unfinished-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name()) // fails once it is renamed
	defer file.Close()
	if err := write(file); err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	if size, err = file.Seek(0, io.SeekCurrent); err != nil {
		return 0, err
	}
	if err := file.Close(); err != nil { // Windows renames no open file
		return 0, err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return 0, err
	}
	return size, syncDir(cmp.Or(dir, "."))
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // it syncs no directory
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
