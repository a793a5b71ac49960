// Explains the API's error codes in sentences that say what to do, specific to the field where that is clearer.

import type { ErrorCode } from '../domain/refusal.ts';

const BAD_GLOBS =
  'Enter at most 50 paths, one on each line, relative to the checkout: without a leading slash, .. or backslashes.';

const general: Record<ErrorCode, string> = {
  api_does_not_exists: 'This does not exist.',
  unauthorized: 'You do not have permission to do this. Ask the owner of the project.',
  account_suspended: 'Your account is suspended. Ask your administrator.',
  payment_required: 'Your account requires payment before it can do this. Ask your administrator.',
  already_exists: 'This name is already in use. Choose another.',
  is_blank: 'This field is required.',
  invalid_format: 'This value is not valid. Check it for typing errors.',
  resource_temporary_unavailable: 'This is not possible right now. Try again in a moment.',
  is_reserved: 'This is reserved or still in use. Choose another.',
  not_found: 'This does not exist, or you cannot see it.',
};

const byField: Record<string, string> = {
  'repository_url invalid_format':
    'Use the form user@host:path.git, for example git@git.example.org:team/website.git.',
  'options[repository_url] invalid_format':
    'Use the form user@host:path.git, for example git@git.example.org:team/website.git.',
  'artifacts invalid_format': BAD_GLOBS,
  'reports invalid_format': BAD_GLOBS,
  'commit_ref invalid_format': 'Enter a branch, a tag, or a commit hash of 7 to 40 digits.',
  'options[local_branch] invalid_format': 'Enter the plain name of a branch, for example main.',
  'options[remote_branch] invalid_format': 'Enter the plain name of a branch, for example main.',
  'options[url] invalid_format':
    'Enter an address that begins with http:// or https://. Loopback and link-local addresses are refused unless an administrator lists them in the setting WEBHOOK_ALLOW.',
  'options[token] is_blank': 'Enter a token of the forge. Another forge or another host needs a new one.',
  'options[token] invalid_format': 'A token has no spaces and only plain letters, digits and punctuation.',
  'options[repository] is_blank':
    'The address of the project does not say how the forge names the repository. Enter it, for example team/website.',
  'options[repository] invalid_format':
    'Enter the repository as the forge names it, for example team/website.',
  'options[branches] invalid_format':
    'Enter at most 100 patterns, separated by spaces, for example main release/*.',
  'options[tags] invalid_format': 'Enter at most 100 patterns, separated by spaces, for example v*.',
  'options[branch] invalid_format': 'Enter the plain name of a branch, for example main.',
  'options[cron] invalid_format':
    'Enter five fields (minute, hour, day, month, weekday), for example 0 3 * * *, or a word such as @daily. The first time must come within eight years.',
  'options[time_zone] invalid_format': 'Choose a time zone, for example Europe/Berlin.',
  'time_zone invalid_format': 'Enter the name of a time zone, for example Europe/Berlin.',
  'theme invalid_format': 'Choose system, light or dark.',
  'name invalid_format':
    'Use one line of at most 255 bytes. The name of a variable has only letters, digits and underscores.',
  'name already_exists': 'This name is already in use (case and white space are ignored). Choose another.',
  'kind invalid_format': 'Choose user or collaborator.',
  'standing invalid_format': 'Choose active, suspended or payment_required.',
  'image not_found':
    'Use host, the default image or an imported image. An administrator adds images with “assay image import”.',
  'image invalid_format': 'Enter the name of an image, for example debian:12.',
  'email invalid_format': 'Enter a complete email address, for example ada@example.org.',
  'email already_exists': 'An account with this email has already been added.',
  'email not_found': 'The email or the password is wrong.',
  'confirm invalid_format': 'Type the exact name of the project.',
  'suite is_blank': 'Choose a suite.',
  'dependency_id is_blank': 'Choose a dependency.',
  'dependency_id already_exists': 'This dependency is already attached.',
  'admin is_reserved': 'You cannot remove your own administrator role. Ask another administrator.',
  'standing is_reserved': 'You cannot change your own standing. Ask another administrator.',
  'trial_ends invalid_format': 'Enter a date such as 2027-01-31.',
  'prefix invalid_format': 'Enter an absolute path without spaces, for example /opt/zlib.',
  'prefix is_reserved': 'This path is reserved for the system. Choose another, for example /opt/zlib.',
  'command invalid_format': 'The command must contain the prefix, so that it installs there.',
  'launch_timeout invalid_format': 'Enter whole seconds, from 5 to 600.',
  'environment invalid_format':
    'Enter one NAME=value on each line. A name has only letters, digits and underscores, and appears once.',
  'environment is_reserved': 'One of these names is set by Assay. Choose another.',
  'source invalid_format': 'Enter a relative path inside the archive, without “..”.',
  'content invalid_format': 'The value must be text of at most 131,072 bytes.',
  'redirect_uri invalid_format':
    'Enter a complete address without a fragment, for example https://example.org/callback.',
  'related_dependencies[] invalid_format':
    'A dependency cannot relate to itself, directly or through others.',
  'archive invalid_format': 'This archive cannot be read. Use tar (plain, gzip, bzip2, xz or zstd) or zip.',
  'archive is_blank': 'Choose an archive to upload.',
  'code invalid_format': 'This is not the code printed by “assay serve”. Check it for typing errors.',
  'current_password invalid_format': 'This is not your current password.',
  'password invalid_format': 'Use at least 8 characters.',
  'generic is_reserved': 'This is still in use, so it cannot be deleted.',
  'generic invalid_format': 'The form could not be read. Try again.',
};

export function errorMessage(field: string, code: ErrorCode): string {
  return byField[`${field} ${code}`] ?? general[code];
}
