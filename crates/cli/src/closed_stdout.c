/*
 * Rust's runtime opens /dev/null where standard output is closed, before `main`. From then on nothing tells `azureal list >&-`
 * from a caller that discards the output, and the lost output would look like a success. This runs earlier, and puts a
 * file there that cannot be written: `output.rs` recognises it.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void mark_closed_stdout(void) {
  if (fcntl(STDOUT_FILENO, F_GETFD) != -1 || errno != EBADF) {
    return;
  }
  int file = open("/dev/null", O_RDONLY);
  if (file >= 0 && file != STDOUT_FILENO) {
    dup2(file, STDOUT_FILENO);
    close(file);
  }
}
